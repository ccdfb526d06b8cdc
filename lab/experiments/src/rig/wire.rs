// SPDX-License-Identifier: Apache-2.0
//! A plain client: `stats`, and the commands that the load generator does not send (delete, touch).
//! And the questions to a server's other sockets: metrics, the rows of `status`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use senko_workload::KeySpace;

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Commands under way.
const BATCH: u64 = 64;

/// The statistics of a server: name to value. Values that are not numbers are omitted.
pub type Stats = BTreeMap<String, f64>;

/// A connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Result<Client> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .with_context(|| format!("no connection to {address}"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client {
            stream: BufReader::new(stream),
        })
    }

    /// Sends commands.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream
            .get_mut()
            .write_all(bytes)
            .context("the server takes no commands")
    }

    /// The next line of an answer, without its end.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let bytes = self
            .stream
            .read_line(&mut line)
            .context("the server does not answer")?;
        if bytes == 0 {
            bail!("the server closed the connection");
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    /// The bytes of a value, without the line end behind them.
    pub fn value(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut value = vec![0; len + 2];
        self.stream
            .read_exact(&mut value)
            .context("a value is not whole")?;
        value.truncate(len);
        Ok(value)
    }

    /// Sends one command and returns its one line of answer.
    pub fn command(&mut self, command: &str) -> Result<String> {
        self.send(format!("{command}\r\n").as_bytes())?;
        self.line()
    }

    /// All that this command returns: `stats`, `stats slabs`.
    /// Any other answer is an error.
    pub fn stats(&mut self, command: &str) -> Result<Stats> {
        self.send(format!("{command}\r\n").as_bytes())?;
        let mut stats = Stats::new();
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(stats);
            }
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("STAT"), Some(name), Some(value)) => {
                    if let Ok(value) = value.parse() {
                        stats.insert(name.to_owned(), value);
                    }
                }
                _ => bail!("the server answered \"{line}\" to {command}"),
            }
        }
    }

    /// Sends `word key` (and `tail`) for each of the keys, many at a time, and counts the answers
    /// that are `good`.
    pub fn for_keys(
        &mut self,
        word: &str,
        tail: &str,
        good: &str,
        keys: &KeySpace,
        numbers: std::ops::Range<u64>,
    ) -> Result<u64> {
        let mut counted = 0;
        let mut from = numbers.start;
        let mut text = Vec::new();
        while from < numbers.end {
            let to = numbers.end.min(from + BATCH);
            text.clear();
            for number in from..to {
                text.extend_from_slice(word.as_bytes());
                text.push(b' ');
                keys.append(number, &mut text);
                text.extend_from_slice(tail.as_bytes());
                text.extend_from_slice(b"\r\n");
            }
            self.send(&text)?;
            for _ in from..to {
                counted += u64::from(self.line()? == good);
            }
            from = to;
        }
        Ok(counted)
    }
}

/// `now - before` of one statistic; 0 where a server does not have it.
pub fn grown(before: &Stats, now: &Stats, name: &str) -> f64 {
    now.get(name).unwrap_or(&0.0) - before.get(name).unwrap_or(&0.0)
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<SocketAddr> {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    free.context("there is no free port")
}

/// The metrics of an admin listener, with the head of its answer.
pub fn metrics(admin: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    if !text.starts_with("HTTP/1.1 200") {
        bail!("the admin listener did not answer /metrics");
    }
    Ok(text)
}

/// The rows of `status` of a server with `--ctl`.
pub fn status(socket: &Path) -> Result<BTreeMap<String, String>> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("no connection to {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"status\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let rows = text.lines().filter_map(|line| line.strip_prefix("= "));
    let rows = rows.filter_map(|row| row.split_once(' '));
    Ok(rows
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

/// A histogram of metrics: the end of each bucket, and how many were below it.
#[derive(Clone, Debug, Default)]
pub struct Buckets(Vec<(f64, f64)>);

impl Buckets {
    /// The samples that begin with this, such as `name_bucket{command="set",tier="dram",le="`.
    pub fn of(metrics: &str, begin: &str) -> Buckets {
        let rest = metrics.lines().filter_map(|line| line.strip_prefix(begin));
        let samples = rest.filter_map(|rest| rest.split_once("\"} "));
        let numbers = samples.filter_map(|(end, below)| {
            let end = end.replace("+Inf", "inf").parse().ok()?;
            Some((end, below.parse().ok()?))
        });
        Buckets(numbers.collect())
    }

    /// What came after `before`.
    pub fn since(&self, before: &Buckets) -> Buckets {
        let pairs = self.0.iter().zip(&before.0);
        Buckets(
            pairs
                .map(|(now, before)| (now.0, now.1 - before.1))
                .collect(),
        )
    }

    pub fn add(&mut self, other: &Buckets) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
        } else {
            self.0
                .iter_mut()
                .zip(&other.0)
                .for_each(|(one, other)| one.1 += other.1);
        }
    }

    /// The end of the bucket with this quantile; NaN if there is nothing.
    pub fn quantile(&self, share: f64) -> f64 {
        let all = self.0.last().map_or(0.0, |&(_, below)| below);
        let bucket = self.0.iter().find(|&&(_, below)| below >= all * share);
        bucket
            .filter(|_| all > 0.0)
            .map_or(f64::NAN, |&(end, _)| end)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use senko_workload::KeyShape;

    #[test]
    fn histograms_of_metrics() {
        let text = |n: [u64; 3]| {
            let [one, two, all] = n;
            format!(
                "b{{c=\"get\",le=\"0.1\"}} 9\nb{{c=\"set\",le=\"0.1\"}} {one}\n\
                 b{{c=\"set\",le=\"0.2\"}} {two}\nb{{c=\"set\",le=\"+Inf\"}} {all}\n"
            )
        };
        let of = |n| Buckets::of(&text(n), "b{c=\"set\",le=\"");
        let mut seen = of([13, 14, 14]).since(&of([3, 3, 3]));
        assert_eq!((seen.quantile(0.5), seen.quantile(0.99)), (0.1, 0.2));
        seen.add(&of([0, 0, 100]));
        assert!(seen.quantile(0.5).is_infinite());
        assert!(Buckets::default().quantile(0.5).is_nan());
        assert!(of([2, 2, 2]).since(&of([2, 2, 2])).quantile(0.5).is_nan());
    }

    #[test]
    fn speaks_with_a_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut out = stream;
            assert_eq!(lines.next().unwrap().unwrap(), "stats");
            out.write_all(b"STAT pid 5\r\nSTAT version x\r\nSTAT fill 0.5\r\nEND\r\n")
                .unwrap();
            for n in 0..100 {
                let line = lines.next().unwrap().unwrap();
                assert_eq!(line, format!("touch k{n} 0"));
                out.write_all(if n % 2 == 0 {
                    b"TOUCHED\r\n"
                } else {
                    b"NOT_FOUND\r\n"
                })
                .unwrap();
            }
            assert_eq!(lines.next().unwrap().unwrap(), "stats");
            out.write_all(b"ERROR\r\n").unwrap();
        });
        let mut client = Client::connect(address).unwrap();
        let stats = client.stats("stats").unwrap();
        assert_eq!(stats.len(), 2);
        assert_eq!(grown(&Stats::new(), &stats, "pid"), 5.0);
        assert_eq!(grown(&stats, &stats, "absent"), 0.0);
        let keys = KeySpace::new("k", KeyShape::Shortest, 100).unwrap();
        assert_eq!(
            client
                .for_keys("touch", " 0", "TOUCHED", &keys, 0..100)
                .unwrap(),
            50
        );
        assert!(
            client
                .stats("stats")
                .unwrap_err()
                .to_string()
                .contains("ERROR")
        );
        server.join().unwrap();
    }
}
