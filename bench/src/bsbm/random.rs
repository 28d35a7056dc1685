//! Random numbers for one instance: small, fast, the same everywhere.
//!
//! # References
//! SplitMix64 (Steele, Lea, Flood 2014); the polar method (Marsaglia, Bray 1964).

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
    spare: Option<f64>,
}

/// What streams are drawn for; part of the seed of each.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Stream {
    Words = 1,
    Names,
    Tree,
    Producers,
    Vendors,
    Sites,
    Persons,
    Type,
    Feature,
    Producer,
    Product,
    Vendor,
    Offer,
    Person,
    Review,
    Mix,
    PathNode,
    Genealogy,
    Warehouse,
    Terminal,
}

impl Random {
    /// The numbers of instance `number` of a class.
    pub(crate) fn new(seed: u64, stream: Stream, number: u64) -> Self {
        let mut random = Self {
            state: seed ^ (stream as u64).wrapping_mul(0xD1B5_4A32_D192_ED03),
            spare: None,
        };
        random.state = random
            .next()
            .wrapping_add(number.wrapping_mul(0xA24B_AED4_963E_E407));
        random.state = random.next();
        random
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..count`; `count` must not be 0.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        // The high half of the product; the bias is below 2^-40 for the counts that occur.
        let product = u128::from(self.next()) * u128::from(count);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// Uniform from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Uniform in `0.0..1.0`.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// Whether an event of this probability happens.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Normally distributed.
    pub(crate) fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        if let Some(spare) = self.spare.take() {
            return mean + deviation * spare;
        }
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(y * factor);
                return mean + deviation * x * factor;
            }
        }
    }

    /// Normally distributed, drawn again until it lies within `low..=high`.
    pub(crate) fn normal_within(&mut self, mean: f64, low: f64, high: f64) -> f64 {
        loop {
            let z = self.normal(mean, 1.0);
            if (low..=high).contains(&z) {
                return z;
            }
        }
    }
}

/// The whole part of a number that is not negative and far below 2^63.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "callers scale numbers from 0 up to counts of instances"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}

/// A count as a factor.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of instances lie far below 2^53"
)]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}
