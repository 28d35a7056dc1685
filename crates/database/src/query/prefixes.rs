//! Prefixes: those that a text declares, and those that everybody knows.
//!
//! # References
//! The namespaces are as their owners publish them; the short names as in prefix.cc and on Wikidata.

use super::shape::is_plain_local;
use super::similar::nearest;
use super::token::Token;

/// Prefixes that are used by the same name everywhere, and the IRIs that they stand for.
const WELL_KNOWN: [(&str, &str); 72] = [
    ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("owl", "http://www.w3.org/2002/07/owl#"),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
    ("xs", "http://www.w3.org/2001/XMLSchema#"),
    ("fn", "http://www.w3.org/2005/xpath-functions#"),
    ("math", "http://www.w3.org/2005/xpath-functions/math#"),
    ("skos", "http://www.w3.org/2004/02/skos/core#"),
    ("skosxl", "http://www.w3.org/2008/05/skos-xl#"),
    ("foaf", "http://xmlns.com/foaf/0.1/"),
    ("dc", "http://purl.org/dc/elements/1.1/"),
    ("dc11", "http://purl.org/dc/elements/1.1/"),
    ("dcterms", "http://purl.org/dc/terms/"),
    ("dct", "http://purl.org/dc/terms/"),
    ("dcmitype", "http://purl.org/dc/dcmitype/"),
    ("dcat", "http://www.w3.org/ns/dcat#"),
    ("schema", "http://schema.org/"),
    ("sdo", "https://schema.org/"),
    ("void", "http://rdfs.org/ns/void#"),
    ("sd", "http://www.w3.org/ns/sparql-service-description#"),
    ("prov", "http://www.w3.org/ns/prov#"),
    ("pav", "http://purl.org/pav/"),
    ("org", "http://www.w3.org/ns/org#"),
    ("adms", "http://www.w3.org/ns/adms#"),
    ("vann", "http://purl.org/vocab/vann/"),
    ("cc", "http://creativecommons.org/ns#"),
    ("vcard", "http://www.w3.org/2006/vcard/ns#"),
    ("geo", "http://www.opengis.net/ont/geosparql#"),
    ("geof", "http://www.opengis.net/def/function/geosparql/"),
    ("sf", "http://www.opengis.net/ont/sf#"),
    ("wgs84", "http://www.w3.org/2003/01/geo/wgs84_pos#"),
    ("gn", "http://www.geonames.org/ontology#"),
    ("time", "http://www.w3.org/2006/time#"),
    ("qb", "http://purl.org/linked-data/cube#"),
    ("sh", "http://www.w3.org/ns/shacl#"),
    ("ldp", "http://www.w3.org/ns/ldp#"),
    ("acl", "http://www.w3.org/ns/auth/acl#"),
    ("oa", "http://www.w3.org/ns/oa#"),
    ("as", "https://www.w3.org/ns/activitystreams#"),
    ("odrl", "http://www.w3.org/ns/odrl/2/"),
    ("sosa", "http://www.w3.org/ns/sosa/"),
    ("ssn", "http://www.w3.org/ns/ssn/"),
    ("sioc", "http://rdfs.org/sioc/ns#"),
    ("doap", "http://usefulinc.com/ns/doap#"),
    ("bibo", "http://purl.org/ontology/bibo/"),
    ("fabio", "http://purl.org/spar/fabio/"),
    ("cito", "http://purl.org/spar/cito/"),
    ("mo", "http://purl.org/ontology/mo/"),
    ("gr", "http://purl.org/goodrelations/v1#"),
    ("qudt", "http://qudt.org/schema/qudt/"),
    ("unit", "http://qudt.org/vocab/unit/"),
    ("obo", "http://purl.obolibrary.org/obo/"),
    ("oboInOwl", "http://www.geneontology.org/formats/oboInOwl#"),
    ("up", "http://purl.uniprot.org/core/"),
    ("taxon", "http://purl.uniprot.org/taxonomy/"),
    ("dbo", "http://dbpedia.org/ontology/"),
    ("dbr", "http://dbpedia.org/resource/"),
    ("dbp", "http://dbpedia.org/property/"),
    ("yago", "http://yago-knowledge.org/resource/"),
    ("wd", "http://www.wikidata.org/entity/"),
    ("wdt", "http://www.wikidata.org/prop/direct/"),
    ("wdtn", "http://www.wikidata.org/prop/direct-normalized/"),
    ("wds", "http://www.wikidata.org/entity/statement/"),
    ("p", "http://www.wikidata.org/prop/"),
    ("ps", "http://www.wikidata.org/prop/statement/"),
    ("psv", "http://www.wikidata.org/prop/statement/value/"),
    ("pq", "http://www.wikidata.org/prop/qualifier/"),
    ("pqv", "http://www.wikidata.org/prop/qualifier/value/"),
    ("pr", "http://www.wikidata.org/prop/reference/"),
    ("wikibase", "http://wikiba.se/ontology#"),
    ("bd", "http://www.bigdata.com/rdf#"),
    ("ontolex", "http://www.w3.org/ns/lemon/ontolex#"),
];

/// The IRI of a well-known prefix.
fn well_known(prefix: &str) -> Option<&'static str> {
    WELL_KNOWN
        .iter()
        .find(|(name, _)| *name == prefix)
        .map(|(_, iri)| *iri)
}

/// The namespaces of all well-known prefixes.
pub(super) fn well_known_namespaces() -> impl Iterator<Item = &'static str> {
    WELL_KNOWN.iter().map(|(_, iri)| *iri)
}

/// What a text declares by PREFIX, later declarations of the same prefix last.
pub(super) fn declared<'a>(
    text: &'a str,
    tokens: &'a [Token],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    tokens.windows(3).filter_map(|window| {
        let [keyword, prefix, iri] = window else {
            return None;
        };
        let prefix = prefix.of(text).strip_suffix(':')?;
        let iri = iri.of(text).strip_prefix('<')?.strip_suffix('>')?;
        let is_declaration = keyword.of(text).eq_ignore_ascii_case("prefix");
        is_declaration.then_some((prefix, iri))
    })
}

/// An IRI as a name with one of the prefixes that are declared: the one that leaves least, if it leaves a plain name.
pub(super) fn prefixed_name(iri: &str, declared: &[(&str, &str)]) -> Option<String> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for (prefix, begin) in declared {
        // What was declared before under the same name is gone.
        names.retain(|(earlier, _)| earlier != prefix);
        let local = iri.strip_prefix(begin);
        names.extend(local.map(|local| (*prefix, local)));
    }
    let is_name = |(_, local): &&(&str, &str)| !local.is_empty() && is_plain_local(local);
    let (prefix, local) = names
        .iter()
        .filter(is_name)
        .min_by_key(|(_, local)| local.len())?;
    Some(format!("{prefix}:{local}"))
}

/// What is to be done about a prefix that is not declared: a message, and the line to add or the
/// prefix that was meant.
pub(super) fn undeclared(prefix: &str, text: &str, tokens: &[Token]) -> (String, Option<String>) {
    let mut message = format!("the prefix {prefix}: is not declared");
    let line = |prefix: &str, iri: &str| format!("PREFIX {prefix}: <{iri}>");
    if let Some(iri) = well_known(prefix) {
        let line = line(prefix, iri);
        message += &format!("; add {line}");
        return (message, Some(line));
    }
    let declared = declared(text, tokens).map(|(prefix, _)| prefix);
    if let Some(near) = nearest(prefix, declared) {
        let near = format!("{near}:");
        message += &format!("; did you mean {near}?");
        return (message, Some(near));
    }
    // A declared prefix with many letters more is no slip; a well-known one may still be meant.
    let known = nearest(prefix, WELL_KNOWN.iter().map(|(name, _)| *name));
    if let Some((near, iri)) = known.and_then(|near| Some((near, well_known(near)?))) {
        message += &format!("; did you mean {near}:, with {}?", line(near, iri));
    } else {
        message += &format!("; add PREFIX {prefix}: with its IRI before the query");
    }
    (message, None)
}

#[cfg(test)]
mod tests {
    use super::super::token::tokens;
    use super::*;

    #[test]
    fn the_table_is_sound() {
        for (number, (prefix, iri)) in WELL_KNOWN.iter().enumerate() {
            assert!(oxiri::Iri::parse(*iri).is_ok(), "{iri}");
            assert!(iri.ends_with(['#', '/']), "{iri}");
            let earlier = WELL_KNOWN.iter().take(number);
            assert!(
                !earlier.into_iter().any(|(name, _)| name == prefix),
                "{prefix}"
            );
        }
    }

    #[test]
    fn an_undeclared_prefix_is_explained() {
        let of = |prefix: &str, text: &str| undeclared(prefix, text, &tokens(text));
        let line = "PREFIX foaf: <http://xmlns.com/foaf/0.1/>";
        assert_eq!(
            of("foaf", "PREFIX foad: <http://a/>"),
            (
                format!("the prefix foaf: is not declared; add {line}"),
                Some(line.to_owned())
            )
        );
        assert_eq!(
            of("scheme", "prefix : <http://a/> prefix schema: <http://b/>"),
            (
                "the prefix scheme: is not declared; did you mean schema:?".to_owned(),
                Some("schema:".to_owned())
            )
        );
        assert_eq!(
            of("dcterm", "").0,
            "the prefix dcterm: is not declared; did you mean dcterms:, with PREFIX dcterms: \
             <http://purl.org/dc/terms/>?"
        );
        assert_eq!(
            of("", "").0,
            "the prefix : is not declared; add PREFIX : with its IRI before the query"
        );
    }
}
