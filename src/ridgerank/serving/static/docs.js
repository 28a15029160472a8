// The API's documentation, drawn from the server's own OpenAPI document: it is right, and it works offline.

import { fetchDescription } from "./api.js";
import { byId, make } from "./dom.js";

const METHODS = ["get", "post", "put", "delete"];
let schemas = {};

try {
  const description = await fetchDescription();
  schemas = description.components?.schemas ?? {};
  document.title = `${description.info.title} ${description.info.version} API`;
  const operations = Object.entries(description.paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => method in methods).map((method) => ({ path, method, ...methods[method] })));
  byId("contents").replaceChildren(make("ul", {}, ...operations.map((operation) =>
    make("li", {}, make("a", { href: `#${anchor(operation)}` }, badge(operation), operation.path)))));
  byId("paths").replaceChildren(
    make("h1", {}, `${description.info.title} ${description.info.version}`),
    make("p", { className: "lead" }, description.info.description ?? ""), ...operations.map(section));
  document.querySelector(location.hash || "body")?.scrollIntoView();
} catch (error) {
  byId("paths").replaceChildren(make("p", { className: "failed" }, error.message));
}

function section(operation) {
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  const parts = [
    make("h2", {}, badge(operation), make("code", {}, operation.path), make("small", {}, operation.summary ?? "")),
    make("p", {}, operation.description ?? ""),
  ];
  if (operation.parameters?.length) parts.push(make("h3", {}, "Parameters"), fields(operation.parameters.map((parameter) =>
    [parameter.name, parameter.schema, parameter.required, parameter.description ?? parameter.schema?.description])));
  if (body) parts.push(make("h3", {}, "Request"), ...describe(body), ...example(operation, body));
  for (const [status, response] of Object.entries(operation.responses ?? {})) {
    const schema = response.content?.["application/json"]?.schema;
    const content = schema && status < 400 ? describe(schema) : [];
    parts.push(make("details", { open: status < 300 },
      make("summary", {}, make("code", {}, status), ` ${response.description ?? ""}`), ...content));
  }
  return make("section", { id: anchor(operation) }, ...parts);
}

/** The fields of a schema as a table; of several alternatives, each. */
function describe(schema) {
  const resolved = resolve(schema);
  if (resolved.anyOf) return resolved.anyOf.flatMap(describe);
  if (resolved.type === "array") return [make("p", {}, "A list; each entry has"), ...describe(resolved.items)];
  const required = new Set(resolved.required ?? []);
  const rows = Object.entries(resolved.properties ?? {}).map(([name, part]) =>
    [name, part, required.has(name), part.description ?? resolve(part).description]);
  return rows.length ? [fields(rows)] : [make("p", {}, typeName(schema))];
}

function fields(rows) {
  const body = make("tbody", {}, ...rows.map(([name, schema, required, description]) => make("tr", {},
    make("th", { scope: "row" }, make("code", {}, name), required ? make("b", { title: "required" }, " *") : null),
    make("td", { className: "type" }, typeName(schema)), make("td", {}, description ?? ""))));
  return make("div", { className: "table" }, make("table", {}, body));
}

function example(operation, schema) {
  const [first] = resolve(schema).examples ?? [];
  if (!first) return [];
  const text = JSON.stringify(first);
  return [make("pre", {}, make("code", {},
    `curl -s ${location.origin}${operation.path} -H 'content-type: application/json' \\\n  -d '${text.replaceAll("'", "'\\''")}'`))];
}

function resolve(schema = {}) {
  return schema.$ref ? schemas[schema.$ref.split("/").at(-1)] ?? {} : schema;
}

function typeName(schema = {}) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.enum || schema.const !== undefined) return (schema.enum ?? [schema.const]).map((value) => JSON.stringify(value)).join(" | ");
  if (schema.anyOf) return schema.anyOf.map(typeName).join(" | ");
  if (schema.type === "array") return `list of ${schema.items ? typeName(schema.items) : "values"}`;
  return schema.type ?? "any";
}

function anchor({ method, path }) {
  return `${method}${path.replaceAll(/[^a-z0-9]+/gi, "-")}`;
}

function badge({ method }) {
  return make("span", { className: `method ${method}` }, method.toUpperCase());
}
