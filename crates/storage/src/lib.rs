//! Files, extents, cache, checkpoint roots and recovery; knows nothing of RDF.
