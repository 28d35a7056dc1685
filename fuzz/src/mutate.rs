//! Changes inputs: bytes, words, brackets, numbers; parts of one input in another; deep and wide.

use crate::random::Random;

/// What numbers are replaced by.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "1e400",
    "1.0E-400",
    "-0.0",
    "0.000000000000000000000000000000000001",
    "99999999999999999999999999999999.9999999999999999999",
    "007",
    "1.",
    ".5",
    "1e",
    "NaN",
    "INF",
];

/// Odd pieces of text that may stand anywhere.
const PIECES: &[&[u8]] = &[
    b"\0",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xe2\x80\xae",
    b"\xf0\x9f\x98\x80",
    b"\\u0000",
    b"\\uD800",
    b"\\uDC00",
    b"\\U00110000",
    b"\\U0001F600",
    b"\\",
    b"\\\\",
    b"%",
    b"%2",
    b"%00",
    b"\"",
    b"'",
    b"\"\"\"",
    b"'''",
    b"\r",
    b"\r\n",
    b"\n",
    b"\t",
    b"#",
    b"\xc2\xa0",
    b"\xcc\x81",
    b"<",
    b">",
    b"<<",
    b">>",
    b"<<(",
    b")>>",
    b"{|",
    b"|}",
    b"@",
    b"^^",
    b"_:",
    b"--",
    b"http://",
    b"&#0;",
    b"&a;",
    b"<!--",
    b"]]>",
    b"\xed\x95\x9c",
    b"\xe2\x82\xac",
];

/// Makes inputs out of others.
#[derive(Debug)]
pub struct Mutator {
    /// Words of the language.
    pub words: &'static [&'static str],
    /// The longest input, in bytes.
    pub bytes_max: usize,
}

impl Mutator {
    /// A new input out of one of `pool`, with parts of others.
    pub fn make(&self, random: &mut Random, pool: &[Vec<u8>]) -> Vec<u8> {
        let mut input = random.pick(pool).clone();
        let changes = match random.below(10) {
            0..=3 => 1,
            4..=6 => 2,
            7 | 8 => 4,
            _ => 12,
        };
        for _ in 0..changes {
            self.change(&mut input, random, pool);
            input.truncate(self.bytes_max);
        }
        input
    }

    fn change(&self, input: &mut Vec<u8>, random: &mut Random, pool: &[Vec<u8>]) {
        match random.below(20) {
            0 => {
                if let Some(byte) = place(input, random) {
                    *byte ^= 1 << random.below(8);
                }
            }
            1 => {
                let value = low_byte(random);
                if let Some(byte) = place(input, random) {
                    *byte = value;
                }
            }
            2 => {
                let (from, to) = range(input.len(), random);
                input.drain(from..to);
            }
            3 => {
                // Cut off in the middle.
                let at = random.below(input.len() + 1);
                input.truncate(at);
            }
            4 => {
                let piece = *random.pick(PIECES);
                insert(input, random, piece);
            }
            5 => {
                let other = random.pick(pool);
                let (from, to) = range(other.len(), random);
                let piece = other.get(from..to).unwrap_or_default().to_vec();
                insert(input, random, &piece);
            }
            6 => {
                // The front of one and the back of another.
                let other = random.pick(pool);
                let at = random.below(input.len() + 1);
                input.truncate(at);
                let from = random.below(other.len() + 1);
                input.extend_from_slice(other.get(from..).unwrap_or_default());
            }
            7 => self.repeat(input, random),
            8 => self.nest(input, random),
            9 => number(input, random),
            _ => self.change_words(input, random, pool),
        }
    }

    /// Repeats a range, seldom very often.
    fn repeat(&self, input: &mut Vec<u8>, random: &mut Random) {
        let (from, to) = range(input.len(), random);
        let piece = input.get(from..to).unwrap_or_default().to_vec();
        if piece.is_empty() {
            return;
        }
        let most = self.bytes_max.saturating_sub(input.len()) / piece.len();
        let times = (*random.pick(&[1, 2, 10, 100, 2_000])).min(most);
        input.splice(to..to, piece.repeat(times));
    }

    /// Puts brackets around a range, seldom very many.
    fn nest(&self, input: &mut Vec<u8>, random: &mut Random) {
        const PAIRS: &[(&str, &str)] = &[
            ("(", ")"),
            ("{", "}"),
            ("[", "]"),
            ("<<", ">>"),
            ("<<( :s :p ", " )>>"),
            ("!(", ")"),
            ("[ :p ", " ]"),
            ("{ FILTER EXISTS ", "}"),
            ("{ OPTIONAL ", "}"),
            ("-", ""),
            ("^", ""),
            ("( ", " )*"),
            ("{\"@id\":\"_:a\",\"p:p\":", "}"),
            ("{\"@graph\":", "}"),
            ("<a:p><a:C>", "</a:C></a:p>"),
            ("\"", "\""),
            ("IF(", ",1,2)"),
            ("{SELECT * ", "}"),
        ];
        let (from, to) = range(input.len(), random);
        let (open, close) = random.pick(PAIRS);
        let length = (open.len() + close.len()).max(1);
        let most = self.bytes_max.saturating_sub(input.len()) / length;
        let times = (*random.pick(&[1, 1, 3, 30, 130, 2_000])).min(most);
        input.splice(to..to, close.repeat(times).into_bytes());
        input.splice(from..from, open.repeat(times).into_bytes());
    }

    fn change_words(&self, input: &mut Vec<u8>, random: &mut Random, pool: &[Vec<u8>]) {
        let own = words(input);
        if own.is_empty() {
            return;
        }
        let (from, to) = *random.pick(&own);
        match random.below(8) {
            0 => {
                input.drain(from..to);
            }
            1 => {
                let word = input.get(from..to).unwrap_or_default().to_vec();
                let (at, _) = *random.pick(&own);
                input.splice(at..at, word);
            }
            2 => {
                let (other, end) = *random.pick(&own);
                let word = input.get(other..end).unwrap_or_default().to_vec();
                input.splice(from..to, word);
            }
            3 => {
                // A run of words moves.
                let (_, end) = *random.pick(&own);
                let end = end.max(to).min(from + 200);
                let run: Vec<u8> = input.drain(from..end).collect();
                insert(input, random, &run);
            }
            4 | 5 if !self.words.is_empty() => {
                let word = *random.pick(self.words);
                let end = if random.chance(50) { to } else { from };
                input.splice(from..end, word.bytes());
            }
            _ => {
                let other = random.pick(pool);
                let theirs = words(other);
                if theirs.is_empty() {
                    return;
                }
                let (start, mut end) = *random.pick(&theirs);
                if random.chance(50) {
                    // Several words.
                    end = random.pick(&theirs).1.max(end).min(start + 120);
                }
                let piece = other.get(start..end).unwrap_or_default().to_vec();
                let until = if random.chance(50) { to } else { from };
                input.splice(from..until, piece);
            }
        }
    }
}

fn low_byte(random: &mut Random) -> u8 {
    random.bits().to_le_bytes().first().copied().unwrap_or(0)
}

fn place<'a>(input: &'a mut [u8], random: &mut Random) -> Option<&'a mut u8> {
    let at = random.below(input.len());
    input.get_mut(at)
}

/// A range, rather a short one.
fn range(length: usize, random: &mut Random) -> (usize, usize) {
    let from = random.below(length + 1);
    let most = if random.chance(70) {
        random.below(24)
    } else {
        random.below(length + 1)
    };
    (from, (from + most).min(length))
}

fn insert(input: &mut Vec<u8>, random: &mut Random, piece: &[u8]) {
    let at = random.below(input.len() + 1);
    input.splice(at..at, piece.iter().copied());
}

/// Puts an odd number where one stands.
fn number(input: &mut Vec<u8>, random: &mut Random) {
    let word = random.pick(NUMBERS).bytes();
    let found: Vec<_> = words(input)
        .into_iter()
        .filter(|(from, _)| input.get(*from).is_some_and(u8::is_ascii_digit))
        .collect();
    if found.is_empty() {
        let at = random.below(input.len() + 1);
        input.splice(at..at, word);
    } else {
        let (from, to) = *random.pick(&found);
        input.splice(from..to, word);
    }
}

/// Where words and signs stand: runs of letters and digits, and single bytes that are no space.
fn words(input: &[u8]) -> Vec<(usize, usize)> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(byte) = input.get(at) {
        let start = at;
        at += 1;
        if is_word(byte) {
            while input.get(at).is_some_and(is_word) {
                at += 1;
            }
        }
        if !byte.is_ascii_whitespace() {
            found.push((start, at));
        }
    }
    found
}

/// Smaller inputs that fail likewise, greedily: `fails` says whether one does.
pub fn shrink(input: &[u8], fails: &mut dyn FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut best = input.to_vec();
    let mut trials = 0;
    let mut size = best.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < best.len() && trials < 3_000 {
            let mut smaller = best.clone();
            smaller.drain(at..(at + size).min(best.len()));
            trials += 1;
            if fails(&smaller) {
                best = smaller;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    best
}
