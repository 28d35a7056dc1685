//! Tests of finding and reading inputs.

use std::io::Write;
use std::sync::Mutex;

use super::*;

/// Keeps notes.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Progress for Notes {
    fn phase(&self, _name: &str, _total: Option<u64>) {}
    fn advance(&self, _done: u64, _quads: u64) {}
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

fn all(source: &Source) -> Result<Vec<u8>> {
    let mut stream = source.open(Arc::default(), &Default::default())?;
    let mut out = Vec::new();
    loop {
        match stream.read(5, &mut out) {
            Ok(0) => return Ok(out),
            Ok(_) => {}
            Err(error) => return Err(stream.failed(error, 1, 1)),
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn source(name: &str, bytes: Vec<u8>) -> Source {
    let input = Input::from_bytes(name, bytes);
    expand(&[input], &()).unwrap().remove(0)
}

#[test]
fn compression_is_told_from_the_first_bytes() {
    let text = b"some text, twice: some text".as_slice();
    assert_eq!(all(&source("a", text.to_vec())).unwrap(), text);
    assert_eq!(all(&source("a", gzip(text))).unwrap(), text);
    let two_members = [gzip(text), gzip(text)].concat();
    assert_eq!(all(&source("a", two_members)).unwrap(), text.repeat(2));
    let frame = zstd::encode_all(text, 1).unwrap();
    assert_eq!(all(&source("a", frame.repeat(2))).unwrap(), text.repeat(2));
    for packed in [bzip2(text), xz(text)] {
        assert_eq!(all(&source("a", packed.clone())).unwrap(), text);
        let twice = [packed.clone(), packed].concat();
        assert_eq!(all(&source("a", twice)).unwrap(), text.repeat(2));
    }
    assert_eq!(all(&source("a", bzip2(b""))).unwrap(), b"");
    assert_eq!(all(&source("a", xz(b""))).unwrap(), b"");
    assert_eq!(
        all(&source("a", b"BZh9 is text".to_vec())).unwrap(),
        b"BZh9 is text"
    );
    assert_eq!(all(&source("a", Vec::new())).unwrap(), b"");
    assert_eq!(all(&source("a", vec![0x1f])).unwrap(), [0x1f]);
}

#[test]
fn damaged_compression_is_an_error() {
    let text: Vec<u8> = (0..10_000_u32)
        .flat_map(|i| (i * i).to_le_bytes())
        .collect();
    for (name, packed) in [
        ("gzip", gzip(&text)),
        ("zstd", zstd::encode_all(&*text, 1).unwrap()),
        ("bzip2", bzip2(&text)),
        ("xz", xz(&text)),
    ] {
        for length in [packed.len() / 2, packed.len() - 1] {
            let cut = all(&source("a", packed[..length].to_vec())).unwrap_err();
            assert_eq!(
                cut.to_string(),
                format!("a: line 1, column 1: the {name} data is cut off")
            );
        }
        // So it is in the second of two streams.
        let second = [packed.clone(), packed[..packed.len() / 2].to_vec()].concat();
        let cut = all(&source("a", second)).unwrap_err().to_string();
        assert!(cut.ends_with("data is cut off"), "{name}: {cut}");
    }
    // Zstandard frames need not have a checksum, the others have.
    for (name, mut damaged) in [
        ("gzip", gzip(&text)),
        ("bzip2", bzip2(&text)),
        ("xz", xz(&text)),
    ] {
        let middle = damaged.len() / 2;
        damaged[middle..middle + 20].fill(0xff);
        let error = all(&source("a", damaged)).unwrap_err().to_string();
        assert!(
            error.contains(&format!("the {name} data is damaged")),
            "{error}"
        );
    }
}

#[test]
fn an_xz_stream_cannot_ask_for_gigabytes() {
    let mut options = lzma_rust2::XzOptions::with_preset(1);
    options.lzma_options.dict_size = 1 << 30;
    let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    encoder.write_all(b"x").unwrap();
    let error = all(&source("a", encoder.finish().unwrap())).unwrap_err();
    assert!(
        error.to_string().contains("the xz data is damaged"),
        "{error}"
    );
}

#[test]
fn folders_are_searched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir_all(path.join("b/c")).unwrap();
    for name in ["z.nt", "b/c/x.ttl.gz", "b/y.NQ", "readme.md", "b/data.rdf"] {
        fs::write(path.join(name), name).unwrap();
    }
    let notes = Notes::default();
    let sources = expand(&[Input::Path(path.to_owned())], &notes).unwrap();
    let names: Vec<_> = sources
        .iter()
        .map(|s| s.name.strip_prefix(path.to_str().unwrap()).unwrap())
        .collect();
    assert_eq!(names, ["/b/c/x.ttl.gz", "/b/data.rdf", "/b/y.NQ", "/z.nt"]);
    assert_eq!(sources[2].format, Some(GraphFormat::NQuads));
    assert_eq!(sources[3].bytes, Some(4));
    let notes = notes.0.into_inner().unwrap();
    assert_eq!(notes.len(), 1);
    assert!(notes[0].ends_with("readme.md"), "{notes:?}");
}

#[test]
fn what_is_missing_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.nt");
    let error = expand(&[Input::Path(missing.clone())], &()).unwrap_err();
    assert!(matches!(&error, Error::Input { source, .. } if source.kind() == ErrorKind::NotFound));
    assert_eq!(
        error.to_string(),
        format!("cannot read {}", missing.display())
    );
    let empty = expand(&[Input::Path(folder.path().to_owned())], &()).unwrap_err();
    assert!(matches!(&empty, Error::Input { source, .. } if source.kind() == ErrorKind::NotFound));
}

#[test]
fn urls_of_files_are_valid() {
    let url = file_url(Path::new("/data/a b/\u{e9}%.ttl")).unwrap();
    assert_eq!(url, "file:///data/a%20b/%C3%A9%25.ttl");
    assert!(oxiri::Iri::parse(url).is_ok());
}

#[test]
fn looking_ahead_takes_nothing_away() {
    let mut stream = source("a", b"abcdef".to_vec())
        .open(Arc::default(), &Default::default())
        .unwrap();
    assert_eq!(stream.look_ahead(3).unwrap(), (b"abc".as_slice(), false));
    assert_eq!(stream.look_ahead(9).unwrap(), (b"abcdef".as_slice(), true));
    stream.skip(1);
    let mut out = Vec::new();
    while stream.read(2, &mut out).unwrap() > 0 {}
    assert_eq!(out, b"bcdef");
}
