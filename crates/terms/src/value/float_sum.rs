//! Exact sums of doubles, from which others can be subtracted: rounded once, when they are read.
//!
//! A double is an integer times a power of two of at least 2^-1074, so a sum of them is one integer in units of
//! 2^-1074, in two's complement over limbs of 64 bits. Only the limbs between the lowest and the highest that were
//! touched are held: four for numbers of like size, 36 at most.
//!
//! # Invariants
//! 1. The last limb is the sign, 0 or all ones (`debug_assert` in `carry`).
//!
//! # References
//! Kulisch: Computer Arithmetic and Validity (2013), section 8, on accumulators that are wide enough.

/// The power of two of the lowest bit.
const LOWEST: usize = 1074;
const LIMB_BITS: usize = 64;

/// A sum of finite doubles, 0 at first.
#[derive(Clone, Debug, Default)]
pub struct FloatSum {
    /// The place of the first limb that is held; those below are 0.
    first: usize,
    /// The lowest one first; empty for 0.
    limbs: Vec<u64>,
}

/// A format that sums are rounded to.
struct Format {
    /// Bits of the significand, with the one that is not written.
    precision: usize,
    /// The bit of a sum that is its smallest number.
    lowest: usize,
    /// The bits of infinity.
    infinity: u64,
}

const DOUBLE: Format = Format {
    precision: 53,
    lowest: 0,
    infinity: 0x7ff0_0000_0000_0000,
};

const FLOAT: Format = Format {
    precision: 24,
    lowest: LOWEST - 149,
    infinity: 0x7f80_0000,
};

impl FloatSum {
    /// Adds a number.
    ///
    /// # Panics
    /// In tests, if it is not finite.
    pub fn add(&mut self, value: f64) {
        debug_assert!(value.is_finite(), "infinities are counted apart");
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 52) & 0x7ff, bits & ((1 << 52) - 1));
        // A number that is not normal has the exponent of the smallest that are.
        let (significand, place) = match exponent {
            0 => (fraction, 0),
            _ => (fraction | 1 << 52, exponent - 1),
        };
        if significand == 0 {
            return;
        }
        #[expect(clippy::cast_possible_truncation, reason = "11 bits")]
        let place = place as usize;
        let wide = u128::from(significand) << (place % LIMB_BITS);
        #[expect(clippy::cast_possible_truncation, reason = "its two halves")]
        let parts = [wide as u64, (wide >> LIMB_BITS) as u64];
        self.hold(place / LIMB_BITS, 3);
        self.carry(place / LIMB_BITS, &parts, value.is_sign_negative());
    }

    /// Adds another sum.
    pub fn add_sum(&mut self, other: &Self) {
        self.combine(other, false);
    }

    /// What is left of the sum without `part`.
    #[must_use]
    pub fn without(&self, part: &Self) -> Self {
        let mut left = self.clone();
        left.combine(part, true);
        left
    }

    /// The nearest double, of two the even one.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        let (negative, bits) = self.rounded(&DOUBLE);
        let value = f64::from_bits(bits);
        if negative { -value } else { value }
    }

    /// The nearest float, of two the even one.
    #[must_use]
    pub fn to_f32(&self) -> f32 {
        let (negative, bits) = self.rounded(&FLOAT);
        #[expect(clippy::cast_possible_truncation, reason = "those of a float")]
        let value = f32::from_bits(bits as u32);
        if negative { -value } else { value }
    }

    /// The bytes that it takes outside of itself.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        self.limbs.capacity() * size_of::<u64>()
    }

    /// Adds another sum, or subtracts it.
    fn combine(&mut self, other: &Self, negative: bool) {
        let Some((sign, limbs)) = other.limbs.split_last() else {
            return;
        };
        self.hold(other.first, other.limbs.len() + 1);
        self.carry(other.first, limbs, negative);
        if *sign != 0 {
            // Limbs of a negative number stand for that many of the place behind them too much.
            self.carry(other.first + limbs.len(), &[1], !negative);
        }
    }

    /// Makes sure that `count` limbs from `first` on are held, the last of them as sign at least.
    fn hold(&mut self, first: usize, count: usize) {
        if self.limbs.is_empty() {
            self.first = first;
        }
        if first < self.first {
            let below = self.first - first;
            self.limbs.splice(..0, std::iter::repeat_n(0, below));
            self.first = first;
        }
        let len = (first + count - self.first).max(self.limbs.len());
        let sign = self.limbs.last().copied().unwrap_or(0);
        if len > self.limbs.len() {
            self.limbs.reserve_exact(len - self.limbs.len());
            self.limbs.resize(len, sign);
        }
    }

    /// Adds or subtracts limbs from a place on; the last limb that is held lies above them.
    fn carry(&mut self, first: usize, parts: &[u64], negative: bool) {
        let limbs = self.limbs.get_mut(first - self.first..).unwrap_or_default();
        let parts = parts.iter().copied().chain(std::iter::repeat(0));
        let mut carried = false;
        for (place, (limb, part)) in limbs.iter_mut().zip(parts).enumerate() {
            if place >= 2 && part == 0 && !carried {
                continue;
            }
            (*limb, carried) = match negative {
                false => limb.carrying_add(part, carried),
                true => limb.borrowing_sub(part, carried),
            };
        }
        // What is carried out of the sign is that of two's complement.
        match self.limbs.last().copied() {
            Some(0 | u64::MAX) | None => (),
            Some(last) => self.limbs.push(if last >> 63 == 0 { 0 } else { u64::MAX }),
        }
        debug_assert!(matches!(self.limbs.last().copied(), Some(0 | u64::MAX)));
    }

    /// Whether it is negative, and the bits of its magnitude in a format.
    fn rounded(&self, format: &Format) -> (bool, u64) {
        let negative = self.limbs.last() == Some(&u64::MAX);
        let mut magnitude = self.limbs.clone();
        if negative {
            let mut carried = true;
            for limb in &mut magnitude {
                (*limb, carried) = (!*limb).overflowing_add(u64::from(carried));
            }
        }
        let Some(top) = magnitude.iter().rposition(|limb| *limb != 0) else {
            return (false, 0);
        };
        let limb = |place: usize| magnitude.get(place).copied().unwrap_or(0);
        // Bits are counted from the first limb that is held.
        let offset = self.first * LIMB_BITS;
        let end = (top + 1) * LIMB_BITS - limb(top).leading_zeros() as usize;
        // The lowest bit that is kept; it may lie below all that are held.
        let wanted = (offset + end).saturating_sub(format.precision);
        let kept = wanted.max(format.lowest);
        let bits_from = |bit: usize| -> u64 {
            let (place, shift) = (bit / LIMB_BITS, bit % LIMB_BITS);
            let wide = u128::from(limb(place + 1)) << LIMB_BITS | u128::from(limb(place));
            #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
            let bits = (wide >> shift) as u64;
            bits
        };
        let exponent = ((kept - format.lowest) as u64) << (format.precision - 1);
        let Some(low) = kept.checked_sub(offset) else {
            // All of it is kept.
            return (negative, exponent + (bits_from(0) << (offset - kept)));
        };
        let mut bits = exponent + bits_from(low);
        if let Some(half) = low.checked_sub(1) {
            let is_set = |bit: usize| limb(bit / LIMB_BITS) >> (bit % LIMB_BITS) & 1 == 1;
            let rest = limb(half / LIMB_BITS) & ((1 << (half % LIMB_BITS)) - 1) != 0
                || (0..half / LIMB_BITS).any(|place| limb(place) != 0);
            bits += u64::from(is_set(half) && (rest || bits & 1 == 1));
        }
        (negative, bits.min(format.infinity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigInt;
    use proptest::prelude::*;

    fn sum(values: &[f64]) -> FloatSum {
        let mut sum = FloatSum::default();
        for value in values {
            sum.add(*value);
        }
        sum
    }

    /// In units of 2^-1074.
    fn exact(value: f64) -> BigInt {
        let bits = value.to_bits();
        let fraction = bits & ((1 << 52) - 1);
        let magnitude = match (bits >> 52) & 0x7ff {
            0 => BigInt::from(fraction),
            exponent => BigInt::from(fraction | 1 << 52) << (exponent - 1),
        };
        if value < 0.0 { -magnitude } else { magnitude }
    }

    /// As decimal text, which is exact as well.
    fn decimal(units: &BigInt) -> String {
        format!("{}e-1074", units * BigInt::from(5).pow(1074))
    }

    fn check(whole: &[f64], part: &[f64]) {
        let left = sum(whole).without(&sum(part));
        let mut again = left.clone();
        again.add_sum(&sum(part));
        assert_eq!(
            again.to_f64().to_bits(),
            sum(whole).to_f64().to_bits(),
            "{whole:?} {part:?}"
        );
        let total = |values: &[f64]| -> BigInt { values.iter().copied().map(exact).sum() };
        let text = decimal(&(total(whole) - total(part)));
        let (double, float): (f64, f32) = (text.parse().unwrap(), text.parse().unwrap());
        // There is no negative zero: 0 is the sum of nothing.
        let (double, float) = (double + 0.0, float + 0.0);
        assert_eq!(
            left.to_f64().to_bits(),
            double.to_bits(),
            "{whole:?} {part:?}"
        );
        let expected = if float == 0.0 { 0.0 } else { float };
        let found = if left.to_f32() == 0.0 {
            0.0
        } else {
            left.to_f32()
        };
        assert_eq!(found.to_bits(), expected.to_bits(), "{whole:?} {part:?}");
    }

    #[test]
    fn what_is_left_is_rounded_once() {
        check(&[1e300, 1.0, -1e300], &[]);
        check(&[1e300, 1.0], &[1e300]);
        check(&[0.1, 0.2, 0.3], &[0.3]);
        check(&[], &[]);
        check(&[-0.0], &[]);
        check(&[f64::MAX, f64::MAX], &[f64::MAX]);
        check(&[f64::MAX, f64::MAX], &[]);
        check(&[-f64::MAX, -f64::MAX], &[f64::MIN_POSITIVE]);
        check(&[f64::from_bits(1)], &[]);
        check(&[f64::from_bits(1), 1.0], &[1.0]);
        check(&[1.0], &[f64::from_bits(1)]);
        check(&[], &[f64::from_bits(1)]);
        // Halves go to the even one, what lies above them up.
        check(&[1.0, f64::EPSILON / 2.0], &[]);
        check(&[1.0 + f64::EPSILON, f64::EPSILON / 2.0], &[]);
        check(&[1.0, f64::EPSILON / 2.0, f64::from_bits(1)], &[]);
        check(&[f64::from(f32::MAX), 1e31], &[]);
        check(
            &[f64::from(f32::from_bits(1)), 1e-60],
            &[f64::from(f32::from_bits(1)) / 2.0],
        );
        check(&[f64::from(f32::MIN_POSITIVE)], &[1e-44]);
        check(
            &[2_f64.powi(63), 2_f64.powi(127), -(2_f64.powi(191))],
            &[2_f64.powi(64)],
        );
    }

    #[test]
    fn numbers_of_like_size_take_little() {
        let mut sum = sum(&[10.25; 1000]);
        sum.add(-3.5);
        assert!(sum.heap_bytes() <= 64, "{} bytes", sum.heap_bytes());
        assert_eq!(sum.to_f64().to_bits(), 10_246.5_f64.to_bits());
    }

    fn doubles() -> impl Strategy<Value = Vec<f64>> {
        let any = proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL;
        let near = (-1_000_000_i32..1_000_000, -60_i32..60)
            .prop_map(|(value, power)| f64::from(value) * 2_f64.powi(power));
        let float = proptest::num::f32::NORMAL.prop_map(f64::from);
        proptest::collection::vec(prop_oneof![any, near, float], 0..24)
    }

    proptest! {
        #[test]
        fn agrees_with_exact_arithmetic(mut values in doubles(), more in doubles(), cut in 0_usize..24) {
            // Some that cancel out.
            let cut = cut.min(values.len());
            let negated: Vec<f64> = values.iter().take(cut).map(|value| -value).collect();
            check(&values, &more);
            values.extend(negated);
            check(&values, &more);
            check(&values, &values[..cut]);
        }
    }
}
