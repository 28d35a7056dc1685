//! The examples of SPARQL 1.1 section 17.4, those of XPath where SPARQL refers to it, and more.

use crate::expression::tests::{check, check_with, select};

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn functions_on_terms() {
    for (expression, expected) in [
        (
            "str(<mailto:alice@work.example>)",
            "\"mailto:alice@work.example\"",
        ),
        ("str(\"a\"@en)", "\"a\""),
        ("str(5.50)", "\"5.50\""),
        ("lang(\"Robert\"@EN)", "\"en\""),
        ("lang(\"Roberto\")", "\"\""),
        ("lang(5)", "\"\""),
        ("lang(<a>)", ""),
        ("langMatches(\"de-DE\", \"DE\")", "true"),
        ("langMatches(\"deu\", \"de\")", "false"),
        ("langMatches(\"fr\", \"*\")", "true"),
        ("langMatches(\"\", \"*\")", "false"),
        (
            "datatype(\"a\")",
            "<http://www.w3.org/2001/XMLSchema#string>",
        ),
        (
            "datatype(\"a\"@en)",
            "<http://www.w3.org/1999/02/22-rdf-syntax-ns#langString>",
        ),
        (
            "datatype(\"5\"^^xsd:byte)",
            "<http://www.w3.org/2001/XMLSchema#byte>",
        ),
        (
            "datatype(1 + 1.0)",
            "<http://www.w3.org/2001/XMLSchema#decimal>",
        ),
        ("datatype(\"x\"^^<http://t>)", "<http://t>"),
        ("datatype(<a>)", ""),
        ("iri(\"a\")", "<http://example.com/base/a>"),
        ("iri(\"http://x/\")", "<http://x/>"),
        ("iri(\"http://x/ y\")", ""),
        ("iri(<http://x/>)", "<http://x/>"),
        ("strdt(\"123\", xsd:integer)", "\"123\"^^xsd:integer"),
        ("strdt(\"0123\", xsd:integer)", "\"0123\"^^xsd:integer"),
        (
            "strdt(\"iiii\", <http://example/romanNumeral>)",
            "\"iiii\"^^<http://example/romanNumeral>",
        ),
        ("strdt(\"a\"@en, xsd:string)", ""),
        ("strlang(\"chat\", \"en\")", "\"chat\"@en"),
        ("strlang(5, \"en\")", ""),
        ("strlangdir(\"abc\", \"en\", \"ltr\")", "\"abc\"@en--ltr"),
        ("langdir(strlangdir(\"abc\", \"en\", \"rtl\"))", "\"rtl\""),
        ("haslang(\"a\"@en)", "true"),
        ("haslang(\"a\")", "false"),
        ("haslangdir(\"a\"@en)", "false"),
        ("isIRI(<a>)", "true"),
        ("isIRI(\"a\")", "false"),
        ("isBlank(<a>)", "false"),
        ("isBlank(bnode())", "true"),
        ("isLiteral(\"a\")", "true"),
        ("isLiteral(true)", "true"),
        ("isLiteral(<a>)", "false"),
        ("isNumeric(12)", "true"),
        ("isNumeric(\"12\")", "false"),
        ("isNumeric(\"12\"^^xsd:nonNegativeInteger)", "true"),
        ("isNumeric(\"1200\"^^xsd:byte)", "false"),
        ("isNumeric(<http://example/>)", "false"),
        ("isNumeric(1 + 1)", "true"),
        ("isIRI(?unbound)", ""),
        ("sameTerm(bnode(), bnode())", "false"),
        ("isTriple(triple(<s>, <p>, \"o\"))", "true"),
        ("object(triple(<s>, <p>, \"o\"))", "\"o\""),
        ("subject(<s>)", ""),
        ("triple(\"s\", <p>, \"o\")", ""),
        ("triple(:s, :p, 1) = triple(:s, :p, 1.0)", "true"),
        ("sameTerm(triple(:s, :p, 1), triple(:s, :p, 1))", "true"),
    ] {
        check(expression, expected);
    }
    let rows = select("SELECT (bnode(\"a\") AS ?x) (bnode(\"a\") AS ?y) { VALUES ?v { 1 2 } }");
    assert_ne!(rows[0][0], rows[1][0]);
    let uuid = &select("SELECT (uuid() AS ?x) (struuid() AS ?y) {}")[0];
    assert!(
        uuid[0].starts_with("<urn:uuid:") && uuid[0].len() == 47,
        "{uuid:?}"
    );
    assert_eq!(uuid[1].len(), 38);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn functions_on_strings() {
    for (expression, expected) in [
        ("strlen(\"chat\")", "\"4\"^^xsd:integer"),
        ("strlen(\"chat\"@en)", "\"4\"^^xsd:integer"),
        ("strlen(\"\u{e9}\u{1f600}\")", "\"2\"^^xsd:integer"),
        ("strlen(5)", ""),
        ("substr(\"foobar\", 4)", "\"bar\""),
        ("substr(\"foobar\"@en, 4)", "\"bar\"@en"),
        ("substr(\"foobar\", 4, 1)", "\"b\""),
        ("substr(\"motor car\", 6)", "\" car\""),
        ("substr(\"metadata\", 4, 3)", "\"ada\""),
        ("substr(\"12345\", 1.5, 2.6)", "\"234\""),
        ("substr(\"12345\", 0, 3)", "\"12\""),
        ("substr(\"12345\", -3, 5)", "\"1\""),
        ("substr(\"12345\", \"NaN\"^^xsd:double)", "\"\""),
        ("ucase(\"foo\")", "\"FOO\""),
        ("ucase(\"foo\"@en)", "\"FOO\"@en"),
        ("lcase(\"BAR\")", "\"bar\""),
        ("strstarts(\"foobar\", \"foo\")", "true"),
        ("strstarts(\"foobar\"@en, \"foo\"@en)", "true"),
        ("strstarts(\"foobar\"@en, \"foo\")", "true"),
        ("strstarts(\"foobar\", \"foo\"@en)", ""),
        ("strends(\"foobar\"@en, \"bar\"@en)", "true"),
        ("contains(\"foobar\", \"bar\")", "true"),
        ("contains(\"foobar\"@en, \"foo\"@fr)", ""),
        ("contains(\"foobar\", \"z\")", "false"),
        ("strbefore(\"abc\", \"b\")", "\"a\""),
        ("strbefore(\"abc\"@en, \"bc\")", "\"a\"@en"),
        ("strbefore(\"abc\"@en, \"b\"@cy)", ""),
        ("strbefore(\"abc\"@en, \"\"@en)", "\"\"@en"),
        ("strbefore(\"abc\", \"xyz\")", "\"\""),
        ("strbefore(\"abc\"@en, \"z\"@en)", "\"\""),
        ("strbefore(\"abc\"@en, \"\")", "\"\"@en"),
        ("strafter(\"abc\", \"b\")", "\"c\""),
        ("strafter(\"abc\"@en, \"ab\")", "\"c\"@en"),
        ("strafter(\"abc\"@en, \"b\"@cy)", ""),
        ("strafter(\"abc\", \"\")", "\"abc\""),
        ("strafter(\"abc\"@en, \"z\")", "\"\""),
        ("strafter(\"abc\"@en, \"\"@en)", "\"abc\"@en"),
        ("encode_for_uri(\"Los Angeles\")", "\"Los%20Angeles\""),
        ("encode_for_uri(\"Los Angeles\"@en)", "\"Los%20Angeles\""),
        ("encode_for_uri(\"~b\u{e9}b\u{e9}\")", "\"~b%C3%A9b%C3%A9\""),
        ("concat(\"foo\", \"bar\")", "\"foobar\""),
        ("concat(\"foo\"@en, \"bar\"@en)", "\"foobar\"@en"),
        ("concat(\"foo\", \"bar\"@en)", "\"foobar\""),
        ("concat(\"foo\"@en, \"bar\"@es)", "\"foobar\""),
        ("concat(\"foo\", 5)", ""),
        ("concat()", "\"\""),
        ("replace(\"abcd\", \"b\", \"Z\")", "\"aZcd\""),
        ("replace(\"abab\", \"B\", \"Z\", \"i\")", "\"aZaZ\""),
        ("replace(\"abab\"@en, \"B.\", \"Z\", \"i\")", "\"aZb\"@en"),
        ("replace(\"abracadabra\", \"bra\", \"*\")", "\"a*cada*\""),
        ("replace(\"abracadabra\", \"a.*?a\", \"*\")", "\"*c*bra\""),
        (
            "replace(\"abracadabra\", \"a(.)\", \"a$1$1\")",
            "\"abbraccaddabbra\"",
        ),
        ("replace(\"abracadabra\", \".*?\", \"$1\")", ""),
        ("replace(\"AAAA\", \"A+?\", \"b\")", "\"bbbb\""),
        (
            "replace(\"darted\", \"^(.*?)d(.*)$\", \"$1c$2\")",
            "\"carted\"",
        ),
        ("replace(\"a\", \"a\", \"$\")", ""),
        ("replace(\"a.b\", \".\", \"$1\", \"q\")", "\"a$1b\""),
        ("regex(\"Alice\", \"^ali\", \"i\")", "true"),
        ("regex(\"Alice\"@en, \"^ali\", \"i\")", "true"),
        ("regex(\"Alice\", \"^ali\")", "false"),
        ("regex(<Alice>, \"ali\")", ""),
        ("regex(\"a\", \"(\")", ""),
    ] {
        check(expression, expected);
    }
    let texts = ["\"a longer text\"@en", "\"LONG.*XT\"", "\"i\""];
    check_with("regex(?a, ?b, ?c)", &texts, "true");
    check_with("ucase(str(?a))", &texts[..1], "\"A LONGER TEXT\"");
    check_with("substr(?a, 3, 6)", &texts[..1], "\"longer\"@en");
    check_with("concat(?a, ?b)", &texts[..2], "\"a longer textLONG.*XT\"");
}

#[test]
fn functions_on_numbers() {
    for (expression, expected) in [
        ("abs(1)", "\"1\"^^xsd:integer"),
        ("abs(-1.5)", "\"1.5\"^^xsd:decimal"),
        ("abs(\"-3\"^^xsd:byte)", "\"3\"^^xsd:integer"),
        ("round(2.4999)", "\"2\"^^xsd:decimal"),
        ("round(2.5)", "\"3\"^^xsd:decimal"),
        ("round(-2.5)", "\"-2\"^^xsd:decimal"),
        ("round(-2.5e0)", "\"-2.0E0\"^^xsd:double"),
        ("ceil(10.5)", "\"11\"^^xsd:decimal"),
        ("ceil(-10.5)", "\"-10\"^^xsd:decimal"),
        ("floor(10.5)", "\"10\"^^xsd:decimal"),
        ("floor(-10.5)", "\"-11\"^^xsd:decimal"),
        ("floor(\"x\")", ""),
        ("rand() < 1 && rand() >= 0", "true"),
    ] {
        check(expression, expected);
    }
}

#[test]
fn functions_on_dates() {
    let moment = "\"2011-01-10T14:45:13.815-05:00\"^^xsd:dateTime";
    for (function, expected) in [
        ("year", "\"2011\"^^xsd:integer"),
        ("month", "\"1\"^^xsd:integer"),
        ("day", "\"10\"^^xsd:integer"),
        ("hours", "\"14\"^^xsd:integer"),
        ("minutes", "\"45\"^^xsd:integer"),
        ("seconds", "\"13.815\"^^xsd:decimal"),
        ("timezone", "\"-PT5H\"^^xsd:dayTimeDuration"),
        ("tz", "\"-05:00\""),
    ] {
        check(&format!("{function}({moment})"), expected);
        check_with(&format!("{function}(?a)"), &[moment], expected);
    }
    for (expression, expected) in [
        ("now()", "\"2026-11-21T12:00:00Z\"^^xsd:dateTime"),
        (
            "timezone(\"2011-01-10T14:45:13.815Z\"^^xsd:dateTime)",
            "\"PT0S\"^^xsd:dayTimeDuration",
        ),
        ("timezone(\"2011-01-10T14:45:13.815\"^^xsd:dateTime)", ""),
        ("tz(\"2011-01-10T14:45:13.815Z\"^^xsd:dateTime)", "\"Z\""),
        ("tz(\"2011-01-10T14:45:13.815\"^^xsd:dateTime)", "\"\""),
        ("year(\"2011-01-10\"^^xsd:date)", "\"2011\"^^xsd:integer"),
        ("year(\"x\")", ""),
        (
            "adjust(\"2002-03-07T10:00:00-07:00\"^^xsd:dateTime, \"-PT10H\"^^xsd:dayTimeDuration)",
            "\"2002-03-07T07:00:00-10:00\"^^xsd:dateTime",
        ),
    ] {
        check(expression, expected);
    }
}

#[test]
fn hashes() {
    for (expression, expected) in [
        ("md5(\"abc\")", "\"900150983cd24fb0d6963f7d28e17f72\""),
        (
            "md5(str(\"abc\"@en))",
            "\"900150983cd24fb0d6963f7d28e17f72\"",
        ),
        ("md5(5)", ""),
        (
            "sha1(\"abc\")",
            "\"a9993e364706816aba3e25717850c26c9cd0d89d\"",
        ),
        (
            "sha256(\"abc\")",
            "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"",
        ),
    ] {
        check(expression, expected);
    }
    for (function, length) in [("sha384", 98), ("sha512", 130)] {
        let rows = select(&format!("SELECT ({function}(\"abc\") AS ?x) {{}}"));
        assert_eq!(rows[0][0].len(), length);
    }
}

#[test]
fn casts() {
    for (expression, expected) in [
        ("xsd:string(<http://a>)", "\"http://a\""),
        ("xsd:string(1.0e2)", "\"100\""),
        ("xsd:string(1.5e10)", "\"1.5E10\""),
        ("xsd:string(2.50)", "\"2.5\""),
        ("xsd:string(\"x y\"^^<http://t>)", "\"x y\""),
        ("xsd:string(true)", "\"true\""),
        ("xsd:boolean(\"true\")", "true"),
        ("xsd:boolean(\"1\")", "true"),
        ("xsd:boolean(0.0)", "false"),
        ("xsd:boolean(\"x\")", ""),
        ("xsd:integer(\"13\")", "\"13\"^^xsd:integer"),
        ("xsd:integer(\"1.5\")", ""),
        ("xsd:integer(1.9)", "\"1\"^^xsd:integer"),
        ("xsd:integer(-1.9e0)", "\"-1\"^^xsd:integer"),
        ("xsd:integer(true)", "\"1\"^^xsd:integer"),
        (
            "xsd:integer(1.0e30)",
            "\"1000000000000000019884624838656\"^^xsd:integer",
        ),
        ("xsd:integer(\"INF\"^^xsd:double)", ""),
        ("xsd:decimal(\"1.50\")", "\"1.5\"^^xsd:decimal"),
        ("xsd:decimal(0.1e0)", "\"0.1\"^^xsd:decimal"),
        ("xsd:decimal(\"INF\"^^xsd:double)", ""),
        ("xsd:float(1.5)", "\"1.5E0\"^^xsd:float"),
        ("xsd:double(\"1.5\")", "\"1.5E0\"^^xsd:double"),
        ("xsd:double(\"1234.56\"^^<http://bsbm/USD>)", ""),
        (
            "xsd:double(str(\"1234.56\"^^<http://bsbm/USD>))",
            "\"1.23456E3\"^^xsd:double",
        ),
        ("xsd:double(\"a\"@en)", ""),
        ("xsd:double(\"inf\")", ""),
        (
            "xsd:dateTime(\"2008-06-20\"^^xsd:date)",
            "\"2008-06-20T00:00:00\"^^xsd:dateTime",
        ),
        (
            "xsd:dateTime(\"2008-06-20T01:02:03Z\")",
            "\"2008-06-20T01:02:03Z\"^^xsd:dateTime",
        ),
        (
            "xsd:date(\"2008-06-20T01:02:03Z\"^^xsd:dateTime)",
            "\"2008-06-20Z\"^^xsd:date",
        ),
        (
            "xsd:time(\"2008-06-20T01:02:03\"^^xsd:dateTime)",
            "\"01:02:03\"^^xsd:time",
        ),
        (
            "xsd:dayTimeDuration(\"P1Y1DT1H\"^^xsd:duration)",
            "\"P1DT1H\"^^xsd:dayTimeDuration",
        ),
        ("xsd:date(5)", ""),
    ] {
        check(expression, expected);
    }
    check_with("xsd:double(str(?a)) < 2000", &["\"1234.56\"^^:USD"], "true");
    check_with("xsd:double(?a)", &["\"1.50\""], "\"1.5E0\"^^xsd:double");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn casts_to_derived_types() {
    for (expression, expected) in [
        ("xsd:byte(127)", "\"127\"^^xsd:byte"),
        ("xsd:byte(128)", ""),
        ("xsd:byte(\" -128 \")", "\"-128\"^^xsd:byte"),
        ("xsd:short(1.9)", "\"1\"^^xsd:short"),
        ("xsd:int(-1.9e0)", "\"-1\"^^xsd:int"),
        ("xsd:long(9223372036854775808)", ""),
        (
            "xsd:unsignedLong(18446744073709551615)",
            "\"18446744073709551615\"^^xsd:unsignedLong",
        ),
        ("xsd:unsignedLong(18446744073709551616)", ""),
        ("xsd:unsignedByte(-1)", ""),
        ("xsd:unsignedShort(true)", "\"1\"^^xsd:unsignedShort"),
        ("xsd:unsignedInt(\"+07\")", "\"7\"^^xsd:unsignedInt"),
        ("xsd:positiveInteger(0)", ""),
        (
            "xsd:positiveInteger(1e20)",
            "\"100000000000000000000\"^^xsd:positiveInteger",
        ),
        ("xsd:nonNegativeInteger(0)", "\"0\"^^xsd:nonNegativeInteger"),
        ("xsd:negativeInteger(0)", ""),
        (
            "xsd:negativeInteger(-12345678901234567890)",
            "\"-12345678901234567890\"^^xsd:negativeInteger",
        ),
        ("xsd:nonPositiveInteger(1)", ""),
        ("xsd:byte(100) + xsd:byte(100)", "\"200\"^^xsd:integer"),
        (
            "datatype(-xsd:byte(1))",
            "<http://www.w3.org/2001/XMLSchema#integer>",
        ),
        ("xsd:int(\"x\")", ""),
        ("xsd:int(\"5\"@en)", ""),
        ("xsd:int(<a>)", ""),
        ("xsd:int(\"5\"^^xsd:token)", "\"5\"^^xsd:int"),
        (
            "xsd:gYear(\"2024-02-29T13:14:15Z\"^^xsd:dateTime)",
            "\"2024Z\"^^xsd:gYear",
        ),
        ("xsd:gYear(\"2024-02-29\"^^xsd:date)", "\"2024\"^^xsd:gYear"),
        ("xsd:gYear(\"2024\")", "\"2024\"^^xsd:gYear"),
        ("xsd:gYear(2024)", ""),
        (
            "xsd:gYearMonth(\"2024-02-29\"^^xsd:date)",
            "\"2024-02\"^^xsd:gYearMonth",
        ),
        (
            "xsd:gMonth(\"2024-02-29\"^^xsd:date)",
            "\"--02\"^^xsd:gMonth",
        ),
        (
            "xsd:gMonthDay(\"2024-02-29\"^^xsd:date)",
            "\"--02-29\"^^xsd:gMonthDay",
        ),
        ("xsd:gDay(\"2024-02-29\"^^xsd:date)", "\"---29\"^^xsd:gDay"),
        ("xsd:gDay(\"2024\"^^xsd:gYear)", ""),
        (
            "xsd:dateTimeStamp(\"2024-02-29T13:14:15Z\")",
            "\"2024-02-29T13:14:15Z\"^^xsd:dateTimeStamp",
        ),
        (
            "xsd:dateTimeStamp(\"2024-02-29T13:14:15\"^^xsd:dateTime)",
            "",
        ),
        ("xsd:hexBinary(\"0fb7\")", "\"0FB7\"^^xsd:hexBinary"),
        ("xsd:hexBinary(\"0fb\")", ""),
        (
            "xsd:base64Binary(\"0fb7\"^^xsd:hexBinary)",
            "\"D7c=\"^^xsd:base64Binary",
        ),
        (
            "xsd:hexBinary(\"D7 c=\"^^xsd:base64Binary)",
            "\"0FB7\"^^xsd:hexBinary",
        ),
        ("xsd:base64Binary(\"D7d=\")", ""),
        ("xsd:base64Binary(\"D===\")", ""),
        ("xsd:base64Binary(\"\")", "\"\"^^xsd:base64Binary"),
        ("xsd:anyURI(\" http://x/ \")", "\"http://x/\"^^xsd:anyURI"),
        ("xsd:anyURI(5)", ""),
        (
            "xsd:normalizedString(\"a\\tb \")",
            "\"a b \"^^xsd:normalizedString",
        ),
        ("xsd:token(\" a  b \")", "\"a b\"^^xsd:token"),
        ("xsd:token(5.50)", "\"5.5\"^^xsd:token"),
        ("xsd:language(\"en-GB\")", "\"en-GB\"^^xsd:language"),
        ("xsd:language(\"en_GB\")", ""),
        ("xsd:NMTOKEN(\"1a\")", "\"1a\"^^xsd:NMTOKEN"),
        ("xsd:Name(\"1a\")", ""),
        ("xsd:Name(\"x:a\")", "\"x:a\"^^xsd:Name"),
        ("xsd:NCName(\"x:a\")", ""),
        ("xsd:NCName(\"\")", ""),
    ] {
        check(expression, expected);
    }
}
