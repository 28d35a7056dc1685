//! Statements of a repository: read, replaced, added, removed, counted, and updated.

use hyper::header::CONTENT_TYPE;
use hyper::{Method, Response, StatusCode};
use stoa_database::{
    CancelHandle, GraphFormat, StatementPattern, TransactionOptions, UpdateOptions,
};

use super::upload::Upload;
use super::values::Parameters;
use super::{Request, done, told};
use crate::http::answering::{Opened, Work, choose, graph_content_type, graph_offers};
use crate::http::body::{BODY_BYTES_MAX, Held, ResponseBody, read_text, reserve};
use crate::http::parameters::{self, split_content_type};
use crate::http::problem::Problem;
use crate::http::route::{CancelOnDrop, joined, run};
use crate::http::updating;
use crate::http::upload::{BODY, again, write_with_body};
use crate::http::writing::{self, write};

/// Formats of statements; those with graphs come first.
const FORMATS: [GraphFormat; 6] = [
    GraphFormat::NQuads,
    GraphFormat::TriG,
    GraphFormat::JsonLd,
    GraphFormat::Turtle,
    GraphFormat::NTriples,
    GraphFormat::RdfXml,
];

/// What clients call N-Quads that are older than its media type.
const OLD_N_QUADS: &str = "text/x-nquads";

/// Answers what is asked of `/statements`.
pub(super) async fn statements(request: Request<'_>) -> Result<Response<ResponseBody>, Problem> {
    let parameters = Parameters::of(request.query())?;
    let method = request.incoming.method().clone();
    if method == Method::GET || method == Method::HEAD {
        let parameters = parameters.reading()?;
        let cancel = CancelHandle::new();
        let (format, content_type) = format(&request, &parameters)?;
        let asked = request.asked(parameters.at)?;
        let (database, to_dump) = (request.database.clone(), cancel.clone());
        let timeout = Some(request.service.settings.timeout);
        let work = Work::Open(Some(Box::new(move || {
            let (state, headers) = asked.open(&database, timeout, &to_dump)?;
            let dump = state.statements(&parameters.pattern(), format, &to_dump)?;
            Ok(Opened {
                work: Work::Dump(Box::new(dump)),
                content_type,
                headers,
            })
        })));
        return run(request.service, request.client, work, cancel).await;
    }
    request.check_writer()?;
    if method == Method::DELETE {
        let parameters = parameters.checked()?;
        let database = request.database.clone();
        let summary = write(request.service, move || {
            let pattern = parameters.pattern();
            Ok(database.remove_statements(&pattern, &CancelHandle::new())?)
        })
        .await?;
        return Ok(done(StatusCode::NO_CONTENT, &summary));
    }
    let content_type = joined(request.incoming.headers(), &CONTENT_TYPE)?.unwrap_or_default();
    let (media_type, _) = split_content_type(&content_type);
    let is_update = parameters.has_update
        || media_type == "application/sparql-update"
        || media_type == "application/x-www-form-urlencoded";
    if method == Method::POST && is_update {
        return update(request).await;
    }
    load(request, parameters.checked()?, method == Method::PUT).await
}

/// The format of statements that the client wants, and the content type.
pub(super) fn format(
    request: &Request<'_>,
    parameters: &Parameters,
) -> Result<(GraphFormat, &'static str), Problem> {
    let accept = parameters.accept(request.incoming.headers())?;
    let mut offers = graph_offers(&FORMATS);
    let quads = (GraphFormat::NQuads, graph_content_type(GraphFormat::NQuads));
    offers.push((OLD_N_QUADS, quads));
    choose(accept.as_deref(), &offers)
}

/// Adds a document, in the place of what it replaces. As long as its statements go where it says, it may have any
/// length; else it goes into a transaction.
async fn load(
    request: Request<'_>,
    parameters: Parameters,
    replaces: bool,
) -> Result<Response<ResponseBody>, Problem> {
    let graphs = parameters.graphs();
    let Request {
        incoming,
        service,
        name,
        database,
        ..
    } = request;
    let (head, body) = incoming.into_parts();
    let upload = Upload::of(&head.headers, parameters, &service.labels, name)?;
    let database = database.clone();
    if let Some(options) = upload.alone(replaces.then(|| graphs.clone())) {
        let guard = CancelOnDrop::new(upload.cancel.clone());
        let summary = write_with_body(service, &head.headers, body, move |reader| {
            Ok(database.load_alone(BODY, reader, &options)?)
        })
        .await?;
        drop(guard.disarm());
        return Ok(done(StatusCode::NO_CONTENT, &summary));
    }
    let summary = write_with_body(service, &head.headers, body, move |reader| {
        let mut transaction = database.begin(&TransactionOptions::default())?;
        if replaces {
            let all = StatementPattern {
                graphs,
                ..StatementPattern::default()
            };
            transaction.remove_statements(&all, &upload.cancel)?;
        }
        upload.add(&mut transaction, reader)?;
        Ok(transaction.commit()?)
    })
    .await
    .map_err(again)?;
    Ok(done(StatusCode::NO_CONTENT, &summary))
}

async fn update(request: Request<'_>) -> Result<Response<ResponseBody>, Problem> {
    let service = request.service;
    let database = request.database;
    let update = Update::of(request, false).await?;
    let is_short = update.is_short;
    let summary = writing::update(service, database, update.text, update.options, is_short).await?;
    Ok(done(StatusCode::NO_CONTENT, &summary))
}

/// An update as a request brings it.
pub(super) struct Update {
    pub(super) text: Held<String>,
    pub(super) options: UpdateOptions,
    /// Whether what was sent is short.
    is_short: bool,
}

impl Update {
    /// Reads an update that is the body, or a parameter of the address or of a form. With `has_action` it is one of a
    /// transaction.
    ///
    /// # Errors
    /// 400 if there is none, and for parameters that an update does not have.
    pub(super) async fn of(request: Request<'_>, has_action: bool) -> Result<Self, Problem> {
        let mut form = request.query().to_owned();
        let endpoint = request.client.endpoint.clone();
        let service = request.service;
        let (head, body) = request.incoming.into_parts();
        let content_type = joined(&head.headers, &CONTENT_TYPE)?.unwrap_or_default();
        let (media_type, _) = split_content_type(&content_type);
        let (body, mut memory) = read_text(service, &head.headers, body, BODY_BYTES_MAX).await?;
        let is_direct = media_type == "application/sparql-update";
        if !is_direct {
            reserve(&mut memory, 2 * body.len() as u64)?;
            form = format!("{form}&{body}");
        }
        let mut parameters = parameters::Parameters {
            has_action,
            ..parameters::Parameters::default()
        };
        parameters.add_form(&form)?;
        if is_direct {
            // The client puts an empty parameter of that name beside it.
            parameters.bytes += body.len();
            parameters.update = Some(body);
        }
        let text = parameters.update.take();
        let text = text.ok_or_else(|| Problem::bad_request("the update is missing"))?;
        let options = updating::options(&parameters, endpoint, &service.settings)?;
        let is_short = parameters.is_short();
        Ok(Self {
            text: (text, memory),
            options,
            is_short,
        })
    }
}

/// How many statements there are.
pub(super) async fn size(request: Request<'_>) -> Result<Response<ResponseBody>, Problem> {
    let parameters = Parameters::of(request.query())?.checked()?;
    let asked = request.asked(parameters.at)?;
    let database = request.database.clone();
    let timeout = Some(request.service.settings.timeout);
    let cancel = CancelHandle::new();
    let _guard = CancelOnDrop::new(cancel.clone());
    let (quads, headers) = write(request.service, move || {
        let (state, headers) = asked.open(&database, timeout, &cancel)?;
        Ok((state.count_statements(&parameters.graphs())?, headers))
    })
    .await?;
    Ok(told(quads.to_string(), &headers))
}
