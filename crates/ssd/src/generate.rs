// SPDX-License-Identifier: Apache-2.0
//! Generated requests: the loads of the endurance literature, for use without a trace or for
//! comparison with a closed form.
//!
//! | name | addresses | own options |
//! |---|---|---|
//! | `uniform` | every page alike | |
//! | `zipf` | Zipf's law over the pages, scattered by a permutation | `theta` (0.99), `scatter` (1; with 0 the most popular pages come first) |
//! | `seq` | one after the other, from the start again at the end | |
//! | `hotcold` | a share `r` of requests goes to a share `f` of the pages | `r` (0.9), `f` (0.1), `scatter` (0: the hot pages come first), `split` (1: cold requests have the stream after the hot ones') |
//!
//! | option of all | meaning | default |
//! |---|---|---|
//! | `count` | requests | 1e6 |
//! | `pages` or `space` | pages that are addressed, or bytes | 262144 |
//! | `start` | the first of them | 0 |
//! | `page` | bytes of a page | 4k |
//! | `size` | bytes of a request, or sizes with weights such as `4k*70+64k*30` | one page |
//! | `writes`, `trims` | shares of the requests; the others read | 1, 0 |
//! | `flush` | a flush after this many requests; 0 for none. It is not counted in `count` | 0 |
//! | `rate` | requests a second; 0 for a closed load, all at the time of the phase's start | 0 |
//! | `gaps` | `poisson` (independent users) or `even` | poisson |
//! | `stream` | the host's stream of the requests | 0 |
//! | `seed` | another seed, other requests | 1 |
//!
//! Numbers may be written `200000`, `2e5` or `200k`; in sizes `k`, `m`, `g` and `t` are powers of
//! 1024.
//!
//! `zipf:theta=0.9,count=1e5/seq:count=2e5,size=64k` is two phases, one after the other. Requests
//! start at page boundaries and stay within the addressed pages. If a drawn page is too near to the
//! end for the request's size, the generator uses the last page at which the request fits. The same
//! text always gives the same requests.

use std::str::FromStr;

use senko_workload::permutation::Permutation;
use senko_workload::zipf::Zipf;
use senko_workload::{Arrivals, Rng, SpecError};

use crate::spec::{Spec, bytes, rows, whole};
use crate::{Error, Op, Request, Time};

const MAX_PHASES: usize = 1000;
/// Most sizes that a phase may draw from.
const MAX_SIZES: usize = 64;
const MAX_SIZE: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    Uniform,
    Zipf {
        /// The exponent; 0 is uniform.
        theta: f64,
        /// Whether popular pages are scattered, or lie at the start.
        scatter: bool,
    },
    Sequential,
    /// A share of the requests goes to a share of the pages.
    HotCold {
        r: f64,
        f: f64,
        /// Whether hot pages are scattered, or lie at the start.
        scatter: bool,
        /// Whether cold requests have their own stream, as if the host separated them.
        split: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// All at the time at which the phase starts: the drive is never idle.
    Closed,
    /// At independent times, this many a second on average.
    Poisson(f64),
    /// At equal distances, this many a second.
    Even(f64),
}

/// A part of a load with constant settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    pub pattern: Pattern,
    /// The number of requests, without flushes.
    pub count: u64,
    pub pages: u64,
    pub start: u64,
    pub page_bytes: u64,
    /// Bytes of a request, and their weights.
    pub sizes: Vec<(u64, u64)>,
    pub writes: f64,
    pub trims: f64,
    /// A flush after this many requests; 0 for none.
    pub flush_every: u64,
    pub arrival: Arrival,
    /// The host's stream.
    pub stream: u16,
    pub seed: u64,
}

impl Phase {
    /// Writes of one 4 KiB page each, as fast as the drive accepts them.
    pub fn new(pattern: Pattern, pages: u64, count: u64) -> Phase {
        Phase {
            pattern,
            count,
            pages,
            start: 0,
            page_bytes: 4096,
            sizes: vec![(4096, 1)],
            writes: 1.0,
            trims: 0.0,
            flush_every: 0,
            arrival: Arrival::Closed,
            stream: 0,
            seed: 1,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let fail = |what: String| Err(Error::Spec(what));
        if self.pages == 0 || self.page_bytes == 0 {
            return fail("a generator needs at least one page of at least one byte".to_owned());
        }
        let end = self
            .start
            .checked_add(self.pages)
            .and_then(|end| end.checked_mul(self.page_bytes));
        if end.is_none() {
            return fail("the pages of a generator end below 2^64 bytes".to_owned());
        }
        if self.sizes.is_empty() || self.sizes.len() > MAX_SIZES {
            return fail(format!("a generator has one to {MAX_SIZES} sizes"));
        }
        let space = self.pages.saturating_mul(self.page_bytes);
        for &(bytes, weight) in &self.sizes {
            if bytes == 0 || bytes > MAX_SIZE || bytes > space || weight == 0 || weight >= 1 << 32 {
                return fail(format!(
                    "a request of {bytes} bytes with weight {weight} is not possible: 1 byte to 1 GiB, no more than the {space} bytes that are addressed, weights from 1 on"
                ));
            }
        }
        let shares = [self.writes, self.trims, self.writes + self.trims];
        if !shares
            .iter()
            .all(|share| (0.0..=1.0 + 1e-9).contains(share))
        {
            return fail(format!(
                "shares of writes and trims lie between 0 and 1 together, and {} and {} do not",
                self.writes, self.trims
            ));
        }
        if self.stream == u16::MAX {
            return fail("streams are numbered up to 65,534".to_owned());
        }
        if let Pattern::HotCold { r, f, .. } = self.pattern {
            let hot = (f * self.pages as f64).round() as u64;
            if !(0.0..=1.0).contains(&r)
                || !(0.0..1.0).contains(&f)
                || hot == 0
                || hot >= self.pages
            {
                return fail(format!(
                    "r={r} and f={f} of {} pages leave no hot or no cold pages",
                    self.pages
                ));
            }
        }
        Ok(())
    }
}

struct Running {
    phase: Phase,
    zipf: Option<Zipf>,
    /// The number of hot pages.
    hot: u64,
    /// The next page of a sequential phase.
    next: u64,
    scatter: Option<Permutation>,
    arrivals: Option<Arrivals>,
    weights: u64,
    rng: Rng,
    given: u64,
    flushed: bool,
    /// Of the current request.
    stream: u16,
}

impl Running {
    fn new(phase: Phase, number: u64) -> Result<Running, Error> {
        phase.check()?;
        let (mut zipf, mut hot) = (None, 0);
        let scatter = match phase.pattern {
            Pattern::Uniform | Pattern::Sequential => false,
            Pattern::Zipf { theta, scatter } => {
                zipf = Some(Zipf::new(phase.pages, theta).map_err(spec_error)?);
                scatter
            }
            Pattern::HotCold { f, scatter, .. } => {
                hot = (f * phase.pages as f64).round() as u64;
                scatter
            }
        };
        let arrivals = match phase.arrival {
            Arrival::Closed => None,
            Arrival::Poisson(rate) => Some(Arrivals::poisson(rate).map_err(spec_error)?),
            Arrival::Even(rate) => Some(Arrivals::even(rate).map_err(spec_error)?),
        };
        Ok(Running {
            zipf,
            hot,
            next: 0,
            // All phases with the same seed and size have the same popular pages.
            scatter: scatter.then(|| Permutation::new(phase.pages, phase.seed)),
            arrivals,
            weights: phase.sizes.iter().map(|size| size.1).sum(),
            rng: Rng::for_stream(phase.seed, number),
            given: 0,
            flushed: true,
            stream: 0,
            phase,
        })
    }

    fn bytes(&mut self) -> u64 {
        if let [(bytes, _)] = self.phase.sizes[..] {
            return bytes;
        }
        let mut at = self.rng.below(self.weights);
        for &(bytes, weight) in &self.phase.sizes {
            if at < weight {
                return bytes;
            }
            at -= weight;
        }
        unreachable!("the weights add up to their sum")
    }

    /// A page at which a request of `need` pages starts.
    fn page(&mut self, need: u64) -> u64 {
        let last = self.phase.pages - need;
        self.stream = self.phase.stream;
        let page = match (self.phase.pattern, &self.zipf) {
            (Pattern::Sequential, _) => {
                let page = if self.next > last { 0 } else { self.next };
                self.next = page + need;
                return page;
            }
            (Pattern::HotCold { r, split, .. }, _) => {
                if self.rng.next_f64() < r {
                    self.rng.below(self.hot)
                } else {
                    self.stream += u16::from(split);
                    self.hot + self.rng.below(self.phase.pages - self.hot)
                }
            }
            (_, Some(zipf)) => zipf.draw(&mut self.rng),
            (_, None) => return self.rng.below(last + 1),
        };
        match &self.scatter {
            Some(permutation) => permutation.apply(page),
            None => page,
        }
        .min(last)
    }

    fn op(&mut self) -> Op {
        let Phase { writes, trims, .. } = self.phase;
        if writes >= 1.0 {
            return Op::Write;
        }
        let at = self.rng.next_f64();
        if at < writes {
            Op::Write
        } else if at < writes + trims {
            Op::Trim
        } else {
            Op::Read
        }
    }
}

pub struct Generator {
    phases: std::vec::IntoIter<Running>,
    current: Option<Running>,
    /// The time of the last request, in nanoseconds; its fraction is kept, so that gaps add up
    /// exactly.
    now: Time,
    fraction: f64,
    left: u64,
}

impl Generator {
    /// A load of phases, one after the other.
    ///
    /// # Errors
    /// If a phase is impossible, or there are none, or more than 1000.
    pub fn new(phases: Vec<Phase>) -> Result<Generator, Error> {
        if !(1..=MAX_PHASES).contains(&phases.len()) {
            return Err(Error::Spec(format!(
                "a load has 1 to {MAX_PHASES} phases, and not {}",
                phases.len()
            )));
        }
        let left = phases
            .iter()
            .map(|phase| phase.count)
            .fold(0, u64::saturating_add);
        let running = phases
            .into_iter()
            .zip(0..)
            .map(|(phase, number)| Running::new(phase, number))
            .collect::<Result<Vec<_>, _>>()?;
        let mut phases = running.into_iter();
        Ok(Generator {
            current: phases.next(),
            phases,
            now: 0,
            fraction: 0.0,
            left,
        })
    }

    /// Remaining requests, without flushes, for a progress bar.
    pub fn remaining(&self) -> u64 {
        self.left
    }
}

impl Iterator for Generator {
    type Item = Request;

    #[inline]
    fn next(&mut self) -> Option<Request> {
        loop {
            let running = self.current.as_mut()?;
            let phase = &running.phase;
            if !running.flushed
                && phase.flush_every > 0
                && running.given.is_multiple_of(phase.flush_every)
            {
                running.flushed = true;
                return Some(Request::flush(self.now));
            }
            if running.given == phase.count {
                self.current = self.phases.next();
                continue;
            }
            if let Some(arrivals) = &running.arrivals {
                let gap = self.fraction + arrivals.draw_ns(&mut running.rng);
                self.now = self.now.saturating_add(gap as u64);
                self.fraction = gap - gap.trunc();
            }
            let page_bytes = phase.page_bytes;
            let op = running.op();
            let bytes = running.bytes();
            let page = running.phase.start + running.page(bytes.div_ceil(page_bytes));
            running.given += 1;
            running.flushed = false;
            self.left = self.left.saturating_sub(1);
            return Some(Request {
                time: self.now,
                device: 0,
                op,
                offset: page * page_bytes,
                bytes,
                stream: running.stream,
            });
        }
    }
}

/// One or more phases, separated by `/`; see the module.
impl FromStr for Generator {
    type Err = Error;

    fn from_str(text: &str) -> Result<Generator, Error> {
        let phases = text.split('/').map(str::parse).collect::<Result<_, _>>()?;
        Generator::new(phases)
    }
}

/// The generators, for users: name, description, own options besides [`COMMON`].
pub const GENERATORS: [(&str, &str, &[&str]); 4] = rows! {
    "uniform", "every page alike", &[];
    "zipf", "Zipf's law over the pages", &["theta", "scatter"];
    "seq", "one page after the other", &[];
    "hotcold", "a share r of requests goes to a share f of the pages",
        &["r", "f", "scatter", "split"];
};

/// Options that all generators have.
pub const COMMON: &str =
    "count, pages, space, start, page, size, writes, trims, flush, rate, gaps, stream, seed";

impl FromStr for Phase {
    type Err = Error;

    fn from_str(text: &str) -> Result<Phase, Error> {
        let mut spec: Spec = text.parse()?;
        let name = spec.name().to_owned();
        let found = GENERATORS.into_iter().find(|known| known.0 == name);
        let Some((_, _, own)) = found else {
            return Err(Error::Spec(format!(
                "\"{name}\" is not a generator; known are {}",
                GENERATORS.map(|generator| generator.0).join(", ")
            )));
        };
        let pattern = match name.as_str() {
            "uniform" => Pattern::Uniform,
            "seq" => Pattern::Sequential,
            "zipf" => Pattern::Zipf {
                theta: spec.take("theta", 0.99)?,
                scatter: spec.take("scatter", 1u8)? != 0,
            },
            _ => Pattern::HotCold {
                r: spec.take("r", 0.9)?,
                f: spec.take("f", 0.1)?,
                scatter: spec.take("scatter", 0u8)? != 0,
                split: spec.take("split", 0u8)? != 0,
            },
        };
        let mut phase = Phase::new(pattern, 262_144, 1_000_000);
        let mut text = |option: &str| spec.take_optional::<String>(option);
        if let Some(page) = text("page")? {
            phase.page_bytes = bytes(&page)?;
            phase.sizes = vec![(phase.page_bytes, 1)];
        }
        if let Some(size) = text("size")? {
            phase.sizes = size.split('+').map(weighted).collect::<Result<_, _>>()?;
        }
        if let Some(space) = text("space")? {
            let space = bytes(&space)?;
            phase.pages = space.checked_div(phase.page_bytes).unwrap_or(0);
        }
        for (option, value) in [
            ("pages", &mut phase.pages),
            ("count", &mut phase.count),
            ("start", &mut phase.start),
            ("flush", &mut phase.flush_every),
        ] {
            if let Some(text) = text(option)? {
                *value = whole(&text)?;
            }
        }
        phase.writes = spec.take("writes", phase.writes)?;
        phase.trims = spec.take("trims", phase.trims)?;
        phase.stream = spec.take("stream", phase.stream)?;
        phase.seed = spec.take("seed", phase.seed)?;
        let rate: f64 = spec.take("rate", 0.0)?;
        let gaps: String = spec.take("gaps", "poisson".to_owned())?;
        phase.arrival = match gaps.as_str() {
            _ if rate == 0.0 => Arrival::Closed,
            "poisson" => Arrival::Poisson(rate),
            "even" => Arrival::Even(rate),
            _ => {
                return Err(Error::Spec(format!(
                    "gaps are poisson or even, and not \"{gaps}\""
                )));
            }
        };
        spec.finish(&[own, &[COMMON]].concat())?;
        phase.check()?;
        Ok(phase)
    }
}

/// `64k*30`: requests of 64 KiB with weight 30; the weight is optional.
fn weighted(text: &str) -> Result<(u64, u64), Error> {
    match text.split_once('*') {
        Some((size, weight)) => Ok((bytes(size)?, whole(weight)?)),
        None => Ok((bytes(text)?, 1)),
    }
}

fn spec_error(error: SpecError) -> Error {
    Error::Spec(error.to_string())
}
