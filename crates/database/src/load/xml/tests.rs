//! Tests of RDF/XML: what is read, and what is refused where.

use std::sync::Arc;

use super::*;
use crate::load::patient::Halt;
use crate::load::sink::recording::RecordingSink;
use crate::load::{Input, source};

const HEAD: &str = "<?xml version=\"1.0\"?>\n<rdf:RDF xmlns:e=\"http://e/\" \
    xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">\n";

fn read(text: impl Into<Vec<u8>>, bytes_max: usize) -> Result<Vec<String>> {
    let input = Input::from_bytes("x.rdf", text);
    let source = source::expand(&[input], &()).unwrap().remove(0);
    let mut stream = source.open(Arc::default(), &Halt::default()).unwrap();
    let mut sink = RecordingSink::default();
    let base = Some("http://base/dir/");
    parse(&mut stream, base, bytes_max, &mut sink, &mut |_| Ok(()))?;
    let mut quads: Vec<String> = sink.quads.iter().map(ToString::to_string).collect();
    quads.sort();
    Ok(quads)
}

fn error(text: impl Into<Vec<u8>>) -> String {
    read(text, usize::MAX).unwrap_err().to_string()
}

#[test]
fn ends_of_lines_are_line_feeds() {
    let text =
        format!("{HEAD}<e:C rdf:about=\"s\"><e:p>a\r\nb\rc\n\r\nd&#xD;\r\n</e:p></e:C></rdf:RDF>");
    let quads = read(text.replace("?>\n", "?>\r\n"), usize::MAX).unwrap();
    assert!(
        quads
            .iter()
            .any(|quad| quad.contains(r#""a\nb\nc\n\nd\r\n""#)),
        "{quads:?}"
    );
    // The place of a mistake is that of the user's text.
    let broken = format!("{HEAD}<e:C rdf:about=\"s\">\n</e:D>").replace('\n', "\r\n");
    assert!(error(broken).contains("line 4"));
}

#[test]
fn documents_are_read() {
    let text = format!(
        "\u{feff}{HEAD}<!-- <a><b> --><e:C rdf:about=\"s\" e:q='x>y/'><e:p>1 &amp; 2</e:p>\
         <e:p><![CDATA[<x>]]></e:p><e:r><rdf:Description rdf:nodeID=\"n\"/></e:r></e:C></rdf:RDF>"
    );
    let expected = [
        "<http://base/dir/s> <http://e/p> \"1 & 2\"",
        "<http://base/dir/s> <http://e/p> \"<x>\"",
        "<http://base/dir/s> <http://e/q> \"x>y/\"",
        "<http://base/dir/s> <http://e/r> _:n",
        "<http://base/dir/s> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://e/C>",
    ];
    assert_eq!(read(text.clone(), usize::MAX).unwrap(), expected);
    let packed = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let cut = error(&packed[..packed.len() - 1]);
    assert!(cut.ends_with("the zstd data is cut off"), "{cut}");
}

#[test]
fn mistakes_are_placed() {
    let filler = "<e:C><e:p>\u{e9}</e:p></e:C>\n".repeat(10_000);
    for (text, place) in [
        ("<e:C rdf:ID=\"1a\"/>", "line 10003, column 1: "),
        (" <e:C rdf:about=\"a b\"/>", "line 10003, column 2: "),
        ("<e:C><e:p></e:C>", "line 10003, column 11: "),
    ] {
        let message = error(format!("{HEAD}{filler}{text}\n</rdf:RDF>\n"));
        assert!(message.starts_with(&format!("x.rdf: {place}")), "{message}");
    }
    let cut = error(format!("{HEAD}<e:C><e:p>"));
    assert!(cut.starts_with("x.rdf: line 3, column "), "{cut}");
    assert!(cut.contains("ends within an element"), "{cut}");
    assert_eq!(
        error(" \n"),
        "x.rdf: line 2, column 1: there is no element: this is no RDF/XML"
    );
}

#[test]
fn white_space_of_attributes_is_spaces() {
    let text = format!(
        "{HEAD}<e:C rdf:about=\"s\"\n\te:p=\"a\tb\nc\r\nd\re &#x9;&#10;f\">\
         <e:q rdf:parseType=\"Literal\"><e:b e:c='1\n2'>\n</e:b></e:q></e:C></rdf:RDF>"
    );
    let quads = read(text, usize::MAX).unwrap();
    let has = |part: &str| quads.iter().any(|quad| quad.contains(part));
    assert!(has(r#""a b c d e \t\nf""#), "{quads:?}");
    assert!(has(r#"e:c=\"1 2\">\n</e:b>"#), "{quads:?}");
}

#[test]
fn what_is_no_xml_is_refused() {
    for (text, place, reason) in [
        (
            "<e:C>\n<e:p>\u{1}</e:p></e:C>",
            "4, column 6",
            "no character U+0001",
        ),
        (
            "<e:C e:p='\u{ffff}'/>",
            "3, column 11",
            "no character U+FFFF",
        ),
        ("<e:C e:p='a&#0;'/>", "3, column 15", "&#0; is no character"),
        (
            "<e:C><e:p>&#x1F;</e:p></e:C>",
            "3, column 16",
            "&#x1F; is no character",
        ),
        ("<e:C><e:p>a]]></e:p></e:C>", "3, column 14", "]]&gt;"),
        (
            "<e:C><e:/></e:C>",
            "3, column 6",
            "e: has nothing behind the colon",
        ),
        (
            "<e:C><f:p/></e:C>",
            "3, column 6",
            "the prefix f is not declared",
        ),
        (
            "<e:C f:p='1'/>",
            "3, column 1",
            "the prefix f is not declared",
        ),
        (
            "\n<e:C xmlns:f=''/>",
            "4, column 1",
            "xmlns:f has no namespace",
        ),
        (
            "<e:C e:p='1' e:p='2'/>",
            "3, column 1",
            "e:p stands there twice",
        ),
        (
            "<e:C xmlns:f='http://e/' e:p='1'\nf:p='2'/>",
            "3, column 1",
            "e:p stands there twice",
        ),
        (
            "<e:C><e:p rdf:parseType='Literal'><f:b/></e:p></e:C>",
            "3, column 35",
            "the prefix f is not declared",
        ),
        ("<e:C><e:p>&unknown;</e:p></e:C>", "3, column ", "unknown"),
        ("<e:C><e:p>a & b</e:p></e:C>", "3, column ", "&"),
    ] {
        // An earlier mistake is told first.
        for (before, is_first) in [("", true), ("<e:C rdf:ID='1a'/>", false)] {
            let message = error(format!("{HEAD}{before}{text}</rdf:RDF>"));
            let is_it =
                message.starts_with(&format!("x.rdf: line {place}")) && message.contains(reason);
            assert_eq!(is_it, is_first, "{before}{text}: {message}");
        }
    }
    let two = error(format!("{HEAD}</rdf:RDF>\n<e:C/>"));
    assert!(
        two.contains("line 4, column 2: there is an element behind"),
        "{two}"
    );
}

/// The objects of `e:p` in a text within an element.
fn objects(text: &str) -> Vec<String> {
    let text = format!("{HEAD}<e:C rdf:about=\"s\">{text}</e:C></rdf:RDF>");
    let quads = read(text.clone(), usize::MAX).unwrap_or_else(|error| panic!("{text}: {error}"));
    let start = "<http://base/dir/s> <http://e/p> ";
    let objects = quads.iter().filter_map(|quad| quad.strip_prefix(start));
    objects.map(str::to_owned).collect()
}

#[test]
fn texts_are_one_whatever_stands_in_them() {
    for (text, expected) in [
        ("<e:p>foo<!-- c -->bar</e:p>", "\"foobar\""),
        (
            "<e:p>foo <![CDATA[a<b]]> &amp; z<?pi x?>y</e:p>",
            "\"foo a<b & zy\"",
        ),
        ("<e:p> <!-- < & ]]> </e:p> --> a</e:p>", "\"  a\""),
        ("<e:p><!----><!-->--></e:p>", "\"\""),
        ("<e:p><!-- only --></e:p>", "\"\""),
        ("<e:p><?pi?></e:p>", "\"\""),
        ("<e:p><?xm-l ? > <a>??></e:p>", "\"\""),
        ("<e:p><![CDATA[]]></e:p>", "\"\""),
        (
            "<e:p><![CDATA[]]]]><![CDATA[>&amp;]]]></e:p>",
            "\"]]>&amp;]\"",
        ),
        ("<e:p><![CDATA[a]b]]c]>]]></e:p>", "\"a]b]]c]>\""),
        (
            "<!-- --><?a?> <!-- --><e:p/><!-- --> <e:q>a</e:q><!-- --><?b?>",
            "\"\"",
        ),
        (
            "<e:p> <!-- --> <e:D rdf:about='o'><e:q/> <!-- --></e:D> <?a?> </e:p>",
            "<http://base/dir/o>",
        ),
        (
            "<e:p rdf:parseType='Literal'>a<!-- - -->b<![CDATA[<]]><e:b><?a?></e:b></e:p>",
            "\"ab&lt;<e:b xmlns:e=\\\"http://e/\\\"></e:b>\"^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#XMLLiteral>",
        ),
    ] {
        assert_eq!(objects(text), [expected], "{text}");
    }
    let comment = format!("<!--{}-->", "- ".repeat(1 << 20));
    let text = format!("{HEAD}<e:C><e:p>a{comment}b</e:p>{comment}</e:C></rdf:RDF>");
    assert_eq!(read(text, 1 << 20).unwrap().len(), 2);
}

#[test]
fn borders_of_pieces_change_nothing() {
    let text = format!(
        "{HEAD}<!-- a --><e:C><e:p e:q='<![CDATA['>a<!-- <b> - -->&amp;<![CDATA[]<&]]]]><?c d?>\n</e:p>\
         <e:D/></e:C></rdf:RDF><?e?><!-- -->\n"
    )
    .replace("'<!", "'&lt;!");
    let expected = format!(
        "{HEAD}<e:C><e:p e:q='&lt;![CDATA['>a&amp;]&lt;&amp;]]\n</e:p><e:D/></e:C></rdf:RDF><?e?>\n"
    );
    for size in [1, 2, 3, 7, 1_000] {
        let mut guard = XmlGuard::new(usize::MAX);
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            let mut piece = piece.to_vec();
            assert!(guard.look(&mut piece).is_ok());
            out.append(&mut piece);
        }
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{size}");
        assert_eq!(guard.missing(), None);
    }
}

#[test]
fn mistakes_behind_what_is_left_out_are_placed() {
    let comment = "<!-- \n -->".repeat(2_000) + "\n";
    for (before, text, reason) in [
        (
            "<e:C><e:p>a<!-- < --> ",
            "<e:D/></e:p></e:C>",
            "Unexpected node",
        ),
        ("<e:C><e:p>a<!-- < -->", "</e:D>", ""),
        ("<e:C><e:p><![CDATA[<a\n<]]>", "</e:D>", ""),
        ("<e:C><!-- -->\n", "<e:D rdf:ID='1a'/>", "1a is not"),
        (
            "<e:C><e:p>",
            "&am<!-- -->p;</e:p></e:C>",
            "an & begins no reference",
        ),
        (
            "<e:C><e:p>",
            "&am<![CDATA[p;]]></e:p></e:C>",
            "an & begins no reference",
        ),
        ("<e:C><!-- a --", " b --></e:C>", "a comment has --"),
        ("<e:C><!-- a --", "-></e:C>", "a comment has --"),
        ("<e:C><![", "DATA[]]></e:C>", "what begins with <!["),
        ("<e:C><!", "DOCTYPE a></e:C>", "what begins with <!"),
        (
            "<e:C><?",
            " a?></e:C>",
            "a processing instruction has no name",
        ),
        ("<e:C><?xMl", " a?></e:C>", "<?xml may only"),
        ("<e:C><e:p><![CDATA[a]]>", "", "the file ends within"),
        ("<e:C><!-- ", "", "the file ends within"),
    ] {
        let message = error(format!("{HEAD}{comment}{before}{text}"));
        let last = before.rsplit('\n').next().unwrap();
        let line = 2_004 + before.matches('\n').count();
        let expected = format!("x.rdf: line {line}, column {}: {reason}", last.len() + 1);
        assert!(
            message.starts_with(&expected),
            "{before}{text}: {message}, not {expected}"
        );
    }
    let entities = "<!DOCTYPE rdf:RDF [<!ENTITY e \"e\">]>";
    let uses = "&e;<!-- -->".repeat(100_000);
    let text = format!("{entities}{HEAD}<e:C><e:p>{uses}</e:p></e:C></rdf:RDF>");
    let text = text.replace("<?xml version=\"1.0\"?>\n", "");
    let message = read(text, 4 << 20).unwrap_err().to_string();
    assert!(message.contains("longer than 4194304 bytes"), "{message}");
}

#[test]
fn xml_literals_are_canonical() {
    let literal = "<e:p rdf:parseType=\"Literal\">It's <e:b f='1' a='&lt;'/><br/></e:p>";
    let given = "<e:q rdf:datatype=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#XMLLiteral\">\
        &lt;br/> &amp;quot;</e:q>";
    let text = format!("{HEAD}<e:C rdf:about=\"s\">{literal}{given}</e:C></rdf:RDF>");
    let quads = read(text, usize::MAX).unwrap();
    let written =
        "\"It's <e:b xmlns:e=\\\"http://e/\\\" a=\\\"&lt;\\\" f=\\\"1\\\"></e:b><br></br>\"";
    assert!(quads[0].contains(written), "{}", quads[0]);
    assert!(quads[1].contains("\"<br/> &quot;\""), "{}", quads[1]);
}

#[test]
fn entities_cannot_make_a_small_file_large() {
    let good = "<?xml version=\"1.0\"?>\n<!DOCTYPE rdf:RDF [\n<!ENTITY e \"http://e/\">\n\
        <!ENTITY f \"&e;f/\">\n]>\n<rdf:RDF xmlns:e=\"&e;\" \
        xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">\
        <rdf:Description rdf:about=\"&f;s\" e:p=\"o\"/></rdf:RDF>";
    assert_eq!(
        read(good, usize::MAX).unwrap(),
        ["<http://e/f/s> <http://e/p> \"o\""]
    );
    let mut text = "<!DOCTYPE rdf:RDF [<!ENTITY a0 \"laugh\">".to_owned();
    for i in 1..30 {
        let before = format!("&a{};", i - 1).repeat(10);
        text += &format!("<!ENTITY a{i} \"{before}\">\n");
    }
    text += &format!("]>{HEAD}<e:C><e:p>&a29;</e:p></e:C></rdf:RDF>");
    assert!(error(text).contains("stands for more than"));
    let uses = good.replace("\"o\"", &format!("\"{}\"", "&e;".repeat(10_000)));
    let message = read(uses, 1 << 20).unwrap_err().to_string();
    assert!(message.contains("longer than 1048576 bytes"), "{message}");
}

#[test]
fn depth_and_length_are_bounded() {
    let deep = format!("{HEAD}{}", "<e:C><e:p>".repeat(XML_DEPTH_MAX));
    assert!(error(deep).contains("nested deeper"));
    let long = format!("{HEAD}<e:C><e:p>{}", "x".repeat(3 << 20));
    let message = read(long, 1 << 20).unwrap_err().to_string();
    assert!(message.contains("1048576 bytes"), "{message}");
}
