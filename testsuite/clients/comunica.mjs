// A session of Comunica with a server: comunica.mjs URL.
import assert from 'node:assert/strict';
import { QueryEngine } from '@comunica/query-sparql';

const url = process.argv[2];
const engine = new QueryEngine();
const context = { sources: [{ type: 'sparql', value: url }] };

const labels = await engine.queryBindings(`PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
  SELECT ?s ?label ?radius { ?s rdfs:label ?label ; <http://example.org/radius> ?radius
  FILTER(lang(?label) = "en") } ORDER BY ?label`, context);
const rows = await labels.toArray();
assert.deepEqual(rows.map((row) => row.get('label').value), ['Ceres', 'Pluto']);
assert.equal(rows[0].get('radius').datatype.value, 'http://www.w3.org/2001/XMLSchema#decimal');

assert.equal(await engine.queryBoolean('ASK { ?s ?p 5 }', context), true);
const quads = await engine.queryQuads('CONSTRUCT { ?s a <http://example.org/World> } { ?s a ?t }', context);
assert.equal((await quads.toArray()).length, 2);
const graph = await engine.queryBindings('SELECT * { GRAPH ?g { ?s a ?t } }', context);
assert.deepEqual((await graph.toArray()).map((row) => row.get('g').value), ['http://example.org/survey']);
// Joined by the client, pattern by pattern, with counts asked of the server.
const joined = await engine.queryBindings(
  'SELECT * { ?s a <http://example.org/Dwarf> ; <http://example.org/moons> ?n ; <http://example.org/found> ?d }', context);
assert.equal((await joined.toArray()).length, 2);
