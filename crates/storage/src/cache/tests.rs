//! Tests of the cache.

use super::Cache;
use crate::extent::{ExtentId, Part, PartRef};
use crate::free_space::PageRange;
use crate::limits::CACHE_ENTRY_OVERHEAD_BYTES;
use crate::memory::MemoryBudget;
use crate::meters::Structure;
use std::sync::Arc;

const LENGTH: u64 = 4000;
const COST: u64 = LENGTH + CACHE_ENTRY_OVERHEAD_BYTES;

fn reference(page: u64) -> PartRef {
    PartRef {
        extent: ExtentId::new(0, page),
        offset: 0,
        length: u32::try_from(LENGTH).unwrap(),
        crc32c: 1,
    }
}

fn bytes() -> Box<[u8]> {
    vec![1; usize::try_from(LENGTH).unwrap()].into()
}

/// Reads a part as a store does; whether it was a hit.
fn touch(cache: &Cache, page: u64) -> bool {
    if cache.get(0, &reference(page)).is_some() {
        return true;
    }
    cache.insert(0, Structure::OTHER, reference(page), bytes());
    false
}

#[test]
fn stays_within_its_limit() {
    let budget = MemoryBudget::new(1 << 30);
    let cache = Cache::new(&budget, 100 * COST);
    for page in 1..1000 {
        touch(&cache, page);
        assert!(cache.counters().bytes <= 100 * COST);
        assert_eq!(budget.used(), cache.counters().bytes);
    }
    assert!(cache.counters().bytes > 90 * COST);
    assert_eq!(
        cache.counters().evictions,
        999 - cache.counters().bytes / COST
    );
}

#[test]
fn a_scan_leaves_what_is_used_again() {
    let cache = Cache::new(&MemoryBudget::unlimited(), 1000 * COST);
    for _ in 0..3 {
        for page in 1..=300 {
            touch(&cache, page);
        }
    }
    for page in 1000..20_000 {
        touch(&cache, page);
    }
    let kept = (1..=300).filter(|page| touch(&cache, *page)).count();
    assert!(kept >= 290, "{kept} of 300 parts outlived the scan");
}

#[test]
fn what_comes_back_soon_is_kept() {
    let cache = Cache::new(&MemoryBudget::unlimited(), 1000 * COST);
    // Twice as much as fits, over and over: better than nothing is kept.
    let mut hits = 0;
    for round in 0..10 {
        for page in 1..2000 {
            hits += u64::from(touch(&cache, page) && round > 1);
        }
    }
    assert!(hits > 2000, "{hits}");
}

#[test]
fn a_reservation_takes_memory_from_the_cache_and_gives_it_back() {
    let budget = MemoryBudget::new(100 * COST);
    let cache = Cache::new(&budget, 100 * COST);
    for page in 1..=100 {
        touch(&cache, page);
    }
    assert_eq!(budget.used(), 100 * COST);
    let mut reservation = budget.try_reserve(60 * COST).unwrap();
    assert!(cache.counters().bytes <= 40 * COST);
    assert!(reservation.grow(41 * COST).is_err());
    assert_eq!(reservation.bytes(), 60 * COST);
    reservation.grow(40 * COST).unwrap();
    assert_eq!(cache.counters().bytes, 0);
    // There is no room, but a reader gets its part.
    let part = cache.insert(0, Structure::OTHER, reference(1), bytes());
    assert_eq!(part.len() as u64, LENGTH);
    assert_eq!(cache.counters().bypassed, 1);
    assert_eq!(budget.used(), 101 * COST);
    drop(part);
    drop(reservation);
    assert_eq!(budget.used(), 0);
    assert_eq!(budget.peak(), 101 * COST);
}

#[test]
fn parts_that_are_held_are_not_evicted() {
    let budget = MemoryBudget::new(20 * COST);
    let cache = Cache::new(&budget, 20 * COST);
    let held: Vec<Part> = (1..=20)
        .map(|page| cache.insert(0, Structure::OTHER, reference(page), bytes()))
        .collect();
    assert!(budget.try_reserve(COST).is_err());
    let other = cache.insert(0, Structure::OTHER, reference(99), bytes());
    assert_eq!(cache.counters().bypassed, 1);
    drop(held);
    drop(other);
    assert!(budget.try_reserve(20 * COST).is_ok());
}

#[test]
fn forgotten_ranges_and_stores_are_gone() {
    let budget = MemoryBudget::unlimited();
    let cache = Cache::new(&budget, 1000 * COST);
    for page in 1..=100 {
        cache.insert(0, Structure::OTHER, reference(page), bytes());
        cache.insert(1, Structure::OTHER, reference(page), bytes());
    }
    let ranges = [(10, 5), (50, 1)].map(|(page, pages)| PageRange {
        first: ExtentId::new(0, page),
        pages,
    });
    cache.forget(0, &ranges);
    for page in 1..=100 {
        let gone = (10..15).contains(&page) || page == 50;
        assert_eq!(cache.contains(0, &reference(page)), !gone, "page {page}");
        assert!(cache.contains(1, &reference(page)));
    }
    cache.forget_store(1);
    assert_eq!(cache.counters().bytes, 94 * COST);
    assert_eq!(budget.used(), 94 * COST);
    cache.clear();
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_part_in_the_middle_of_an_extent_is_forgotten_with_its_pages() {
    let cache = Cache::new(&MemoryBudget::unlimited(), 1000 * COST);
    let part = PartRef {
        extent: ExtentId::new(3, 10),
        offset: 2 * 4096 + 4000,
        length: 200,
        crc32c: 1,
    };
    let forgets = |page, pages| {
        cache.insert(0, Structure::OTHER, part, vec![0; 200].into());
        let first = ExtentId::new(3, page);
        cache.forget(0, &[PageRange { first, pages }]);
        !cache.contains(0, &part)
    };
    assert!(!forgets(1, 11) && !forgets(14, 5));
    assert!(forgets(12, 1) && forgets(13, 1) && forgets(1, 12) && forgets(13, 10));
}

#[test]
fn another_checksum_is_another_part() {
    let cache = Cache::new(&MemoryBudget::unlimited(), 1000 * COST);
    cache.insert(0, Structure::OTHER, reference(1), bytes());
    let other = PartRef {
        crc32c: 2,
        ..reference(1)
    };
    assert!(cache.get(0, &other).is_none());
    cache.insert(0, Structure::OTHER, other, bytes());
    assert!(cache.get(0, &reference(1)).is_none());
    assert!(cache.get(0, &other).is_some());
    assert_eq!(cache.counters().bytes, COST);
}

#[test]
fn several_threads_read_and_reserve() {
    let budget = MemoryBudget::new(300 * COST);
    let cache = Cache::new(&budget, 200 * COST);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (cache, budget) = (Arc::clone(&cache), budget.clone());
            scope.spawn(move || {
                let mut state = thread;
                for _ in 0..5000 {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    touch(&cache, 1 + (state >> 40) % 400);
                    if state % 16 == 0 {
                        drop(budget.try_reserve(50 * COST));
                    }
                }
            });
        }
    });
    assert_eq!(budget.used(), cache.counters().bytes);
    cache.clear();
    assert_eq!(budget.used(), 0);
}

#[test]
fn what_is_resident_is_known() {
    let cache = Cache::new(&MemoryBudget::unlimited(), 100 * COST);
    let (one, two) = (Structure::new(1), Structure::new(2));
    let of = |cache: &Cache, store, structure: Structure| {
        cache.resident(store)[usize::from(structure.number())]
    };
    for page in 1..=20 {
        cache.insert(0, one, reference(page), bytes());
        cache.insert(0, two, reference(page + 1000), bytes());
        cache.insert(1, one, reference(page), bytes());
    }
    assert_eq!(of(&cache, 0, one), 20 * COST);
    assert_eq!(of(&cache, 0, two), 20 * COST);
    assert_eq!(of(&cache, 0, Structure::OTHER), 0);
    // Who comes second with a part changes nothing; other bytes in its place are of who wrote them.
    cache.insert(0, two, reference(1), bytes());
    let other = PartRef {
        crc32c: 2,
        ..reference(2)
    };
    cache.insert(0, two, other, bytes());
    assert_eq!(of(&cache, 0, one), 19 * COST);
    assert_eq!(of(&cache, 0, two), 21 * COST);
    for page in 2000..2200 {
        cache.insert(0, two, reference(page), bytes());
        let known = of(&cache, 0, one) + of(&cache, 0, two) + of(&cache, 1, one);
        assert_eq!(known, cache.counters().bytes);
    }
    cache.forget_store(0);
    assert_eq!(cache.resident(0), [0; Structure::COUNT]);
    cache.clear();
    assert_eq!(of(&cache, 1, one), 0);
}
