//! A genealogy as an encyclopedia has it: people and their children, places within places, events, films.
//!
//! Persons are numbered by time: parents have lower numbers than their children. Of most people nobody knows the parents;
//! one in twenty belongs to a dynasty, where both are known and come from few families, so that lines of ancestors are long
//! and meet again. Countries, types and actors are drawn by powers of a uniform number: few have most, and most have few.
//!
//! # References
//! The shape of Yago 2 as the six queries of Pythia see it.

use super::{Common, Triples};
use crate::bsbm::date;
use crate::bsbm::random::{Random, Stream, real, whole};
use crate::bsbm::words::Words;

const RESOURCE: &str = "http://stoa.example/genealogy/";
const TYPE: &str = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>";
const LABEL: &str = "<http://www.w3.org/2000/01/rdf-schema#label>";
const SUBCLASS: &str = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>";

const EVENT_TYPES: [&str; 12] = [
    "Battle",
    "Election",
    "Treaty",
    "War",
    "Siege",
    "Games",
    "Revolution",
    "Conference",
    "Expedition",
    "Coronation",
    "Earthquake",
    "Exhibition",
];
const FILM_TYPES: [&str; 10] = [
    "Drama",
    "Comedy",
    "Thriller",
    "Documentary",
    "Western",
    "Musical",
    "War_film",
    "Cartoon",
    "Fantasy",
    "Silent_film",
];
/// By depth below a country, two of each.
const PLACE_TYPES: [&str; 8] = [
    "Region", "Island", "District", "Valley", "Town", "Village", "Quarter", "Mountain",
];
const GENDERS: [&str; 2] = ["male", "female"];
/// Of each hundred persons, those whose parents are all known.
const DYNASTY_PERCENT: u64 = 5;

/// What `stoa-bench generate genealogy` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Number of people; each stands for about nine triples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    people: u64,
    #[command(flatten)]
    common: Common,
}

/// What there is, by number of people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pools {
    seed: u64,
    people: u64,
    countries: u64,
    places: u64,
    events: u64,
    films: u64,
    actors: u64,
}

/// Streams of random numbers by class: the class is the low part of the number.
#[derive(Clone, Copy, Debug)]
enum Class {
    Person,
    Parents,
    Place,
    Event,
    Film,
    Country,
}

/// # Errors
/// When the data cannot be written.
pub(crate) fn generate(arguments: &Arguments) -> anyhow::Result<()> {
    let mut triples = Triples::open(&arguments.common)?;
    Pools::new(arguments.people, arguments.common.seed).write(&mut triples)?;
    triples.end()
}

fn iri(path: &str) -> String {
    format!("<{RESOURCE}{path}>")
}

fn vocabulary(name: &str) -> String {
    format!("<{RESOURCE}vocabulary/{name}>")
}

/// One of `count`, from 1; the first are the most likely, the more so the higher the power.
fn skewed(random: &mut Random, count: u64, power: i32) -> u64 {
    (whole(real(count) * random.unit().powi(power)) + 1).min(count)
}

fn one_of<'a>(random: &mut Random, names: &[&'a str]) -> &'a str {
    let at = skewed(random, names.len() as u64, 2) - 1;
    let name = usize::try_from(at).ok().and_then(|at| names.get(at));
    name.copied().unwrap_or("")
}

impl Pools {
    /// Pools of the data that `generate genealogy` makes of the same number of people and seed.
    pub(crate) fn new(people: u64, seed: u64) -> Self {
        let countries = (people / 5_000).clamp(20, 200);
        Self {
            seed,
            people,
            countries,
            places: people / 10 + 4 * countries,
            events: people / 20 + 10,
            films: people / 15 + 10,
            actors: people / 30 + 5,
        }
    }

    /// The text for a kind of parameter: `country`, `gender`, `event-type`, `actor`, `film-type`, `place-type`, `person`.
    pub(crate) fn draw(&self, kind: &str, random: &mut Random) -> Option<String> {
        Some(match kind {
            // Uniform: the large and the small are asked for alike.
            "country" => iri(&format!("place/{}", random.between(1, self.countries))),
            "gender" => iri(GENDERS.get(usize::from(random.chance(0.5)))?),
            "event-type" => vocabulary(one_of(random, &EVENT_TYPES)),
            "film-type" => vocabulary(one_of(random, &FILM_TYPES)),
            "place-type" => vocabulary(one_of(random, &PLACE_TYPES)),
            "actor" => {
                let rank = skewed(random, self.actors, 3);
                iri(&format!("person/{}", self.actor(rank)))
            }
            // The later half of the dynasties: people with ancestors.
            "person" => {
                let hundred = random.between(self.people / 200, (self.people / 100).max(1) - 1);
                let number = 100 * hundred + random.between(1, DYNASTY_PERCENT);
                iri(&format!("person/{}", number.min(self.people)))
            }
            _ => return None,
        })
    }

    fn random(&self, class: Class, number: u64) -> Random {
        Random::new(self.seed, Stream::Genealogy, 8 * number + class as u64)
    }

    /// Writes everything.
    pub(super) fn write(&self, triples: &mut Triples) -> anyhow::Result<()> {
        let words = Words::names(self.seed);
        self.types(triples)?;
        for number in 1..=self.places {
            self.place(number, &words, triples)?;
        }
        for number in 1..=self.countries {
            self.country(number, triples)?;
        }
        for number in 1..=self.people {
            self.person(number, &words, triples)?;
        }
        for number in 1..=self.events {
            self.event(number, &words, triples)?;
        }
        for number in 1..=self.films {
            self.film(number, &words, triples)?;
        }
        Ok(())
    }

    fn types(&self, triples: &mut Triples) -> anyhow::Result<()> {
        let classes: [(&str, &[&str]); 3] = [
            ("Event", &EVENT_TYPES),
            ("Film", &FILM_TYPES),
            ("Place", &PLACE_TYPES),
        ];
        for (class, names) in classes {
            for name in names {
                triples.add(&vocabulary(name), SUBCLASS, &vocabulary(class))?;
            }
        }
        triples.add(&vocabulary("Country"), SUBCLASS, &vocabulary("Place"))
    }

    /// How deep below a country a place lies, and the numbers of its level, both included.
    fn level(&self, number: u64) -> (u64, u64, u64) {
        // Each level has six times as many places as the one above it; the last one has the rest.
        let (mut depth, mut first, mut last) = (0, 1, self.countries);
        while number > last {
            let size = last - first + 1;
            first = last + 1;
            last = if depth == 3 {
                self.places
            } else {
                (last + 6 * size).min(self.places)
            };
            depth += 1;
        }
        (depth, first, last)
    }

    fn place(&self, number: u64, words: &Words, triples: &mut Triples) -> anyhow::Result<()> {
        let mut random = self.random(Class::Place, number);
        let subject = iri(&format!("place/{number}"));
        let (depth, first, _) = self.level(number);
        let class = if depth == 0 {
            "Country"
        } else {
            let of_depth = 2 * (depth - 1) + u64::from(random.chance(0.3));
            let at = usize::try_from(of_depth).unwrap_or(0);
            PLACE_TYPES.get(at).copied().unwrap_or("Place")
        };
        triples.add(&subject, TYPE, &vocabulary(class))?;
        let label = format!("\"{}\"@en", words.draw(&mut random));
        triples.add(&subject, LABEL, &label)?;
        if depth > 0 {
            let (_, above, last) = self.level(first - 1);
            let parent = above - 1 + skewed(&mut random, last - above + 1, 2);
            let parent = iri(&format!("place/{parent}"));
            triples.add(&subject, &vocabulary("isLocatedIn"), &parent)?;
        }
        Ok(())
    }

    fn country(&self, number: u64, triples: &mut Triples) -> anyhow::Result<()> {
        let mut random = self.random(Class::Country, number);
        let subject = iri(&format!("place/{number}"));
        let mut partners = std::collections::BTreeSet::new();
        for _ in 0..3 + skewed(&mut random, self.countries / 2, 2) {
            let partner = skewed(&mut random, self.countries, 2);
            if partner != number && partners.insert(partner) {
                let partner = iri(&format!("place/{partner}"));
                triples.add(&subject, &vocabulary("dealsWith"), &partner)?;
            }
        }
        Ok(())
    }

    /// The person who is the actor of this rank.
    fn actor(&self, rank: u64) -> u64 {
        // Spread over all people by steps of the golden ratio.
        let step = whole(real(self.people) * 0.618_034) | 1;
        rank.wrapping_mul(step) % self.people + 1
    }

    fn gender(&self, person: u64) -> usize {
        usize::from(self.random(Class::Person, person).chance(0.45))
    }

    /// Known parents of a person, each with the gender a parent of that kind has.
    fn parents(&self, person: u64) -> Vec<u64> {
        let mut random = self.random(Class::Parents, person);
        let of_hundred = (person - 1) % 100;
        let hundred = (person - 1) / 100;
        let known = match of_hundred < DYNASTY_PERCENT {
            true => [true, true],
            false if random.chance(0.2) => [random.chance(0.8), random.chance(0.5)],
            false => [false, false],
        };
        let mut parents = Vec::new();
        if hundred < 4 {
            return parents;
        }
        for (gender, known) in known.into_iter().enumerate() {
            // Few parents of each time have most of the children.
            let back = 1 + skewed(&mut random, (hundred - 1).min(40), 2);
            let place = if random.chance(0.9) || of_hundred < DYNASTY_PERCENT {
                random.below(DYNASTY_PERCENT)
            } else {
                skewed(&mut random, 100, 2) - 1
            };
            let first = 100 * (hundred.saturating_sub(back)) + place + 1;
            // The next one of the dynasty with this gender, or nobody.
            let candidates = (0..DYNASTY_PERCENT).map(|step| first + 100 * (step % back));
            let parent = candidates
                .filter(|&parent| parent < person)
                .find(|&parent| self.gender(parent) == gender);
            if known {
                parents.extend(parent);
            }
        }
        parents
    }

    fn person(&self, number: u64, words: &Words, triples: &mut Triples) -> anyhow::Result<()> {
        let mut random = self.random(Class::Person, number);
        let gender = usize::from(random.chance(0.45));
        let subject = iri(&format!("person/{number}"));
        triples.add(&subject, TYPE, &vocabulary("Person"))?;
        let language = one_of(&mut random, &["en", "de", "fr", "es", "ja"]);
        let (given, family) = (words.draw(&mut random), words.draw(&mut random));
        triples.add(&subject, LABEL, &format!("\"{given} {family}\"@{language}"))?;
        let gender = GENDERS.get(gender).copied().unwrap_or("");
        triples.add(&subject, &vocabulary("hasGender"), &iri(gender))?;
        let country = skewed(&mut random, self.countries, 3);
        let citizen = vocabulary("isCitizenOf");
        triples.add(&subject, &citizen, &iri(&format!("place/{country}")))?;
        if random.chance(0.08) {
            let second = skewed(&mut random, self.countries, 2);
            if second != country {
                triples.add(&subject, &citizen, &iri(&format!("place/{second}")))?;
            }
        }
        if random.chance(0.7) {
            let place = iri(&format!("place/{}", skewed(&mut random, self.places, 2)));
            triples.add(&subject, &vocabulary("wasBornIn"), &place)?;
        }
        if random.chance(0.6) {
            // From 1500 on, in the order of the numbers, a generation to and fro.
            let share = real(number) / real(self.people);
            let day = whole(share * 180_000.0 + random.unit() * 10_000.0);
            let day = self.date(i64::try_from(day).unwrap_or(0));
            triples.add(&subject, &vocabulary("wasBornOnDate"), &day)?;
        }
        for parent in self.parents(number) {
            let parent = iri(&format!("person/{parent}"));
            triples.add(&parent, &vocabulary("hasChild"), &subject)?;
        }
        Ok(())
    }

    /// A day since 1500-01-01.
    fn date(&self, days: i64) -> String {
        let mut text = Vec::new();
        date::write(date::days(1500, 1, 1) + days, &mut text);
        let text = String::from_utf8_lossy(&text);
        format!("\"{text}\"^^<http://www.w3.org/2001/XMLSchema#date>")
    }

    fn event(&self, number: u64, words: &Words, triples: &mut Triples) -> anyhow::Result<()> {
        let mut random = self.random(Class::Event, number);
        let subject = iri(&format!("event/{number}"));
        let class = one_of(&mut random, &EVENT_TYPES);
        triples.add(&subject, TYPE, &vocabulary(class))?;
        let label = format!("\"{} of {}\"@en", class, words.draw(&mut random));
        triples.add(&subject, LABEL, &label)?;
        let day = i64::try_from(random.below(190_000)).unwrap_or(0);
        triples.add(&subject, &vocabulary("happenedOnDate"), &self.date(day))?;
        let place = iri(&format!("place/{}", skewed(&mut random, self.places, 2)));
        triples.add(&subject, &vocabulary("happenedIn"), &place)?;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1 + skewed(&mut random, 6, 2) {
            seen.insert(format!("place/{}", skewed(&mut random, self.countries, 3)));
        }
        for _ in 0..random.below(4) {
            seen.insert(format!("person/{}", random.between(1, self.people)));
        }
        for who in seen {
            triples.add(&iri(&who), &vocabulary("participatedIn"), &subject)?;
        }
        Ok(())
    }

    fn film(&self, number: u64, words: &Words, triples: &mut Triples) -> anyhow::Result<()> {
        let mut random = self.random(Class::Film, number);
        let subject = iri(&format!("film/{number}"));
        triples.add(
            &subject,
            TYPE,
            &vocabulary(one_of(&mut random, &FILM_TYPES)),
        )?;
        let (first, second) = (words.draw(&mut random), words.draw(&mut random));
        triples.add(&subject, LABEL, &format!("\"{first} and {second}\"@en"))?;
        let minutes = random.between(60, 220);
        let minutes = format!("\"{minutes}\"^^<http://www.w3.org/2001/XMLSchema#integer>");
        triples.add(&subject, &vocabulary("hasDuration"), &minutes)?;
        let mut cast = std::collections::BTreeSet::new();
        for _ in 0..1 + skewed(&mut random, 20, 2) {
            cast.insert(self.actor(skewed(&mut random, self.actors, 3)));
        }
        for actor in cast {
            let actor = iri(&format!("person/{actor}"));
            triples.add(&actor, &vocabulary("actedIn"), &subject)?;
        }
        Ok(())
    }
}
