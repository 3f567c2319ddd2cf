// The routes and their messages, as openapi.json describes them.

import { element } from "./elements.js";
import { keyForm } from "./key.js";
import { ask } from "./service.js";

const at = id => document.getElementById(id);
const key = keyForm(begin);
const code = text => element("code", {}, text);

async function begin() {
  try {
    draw(await ask("openapi.json"));
    at("error").hidden = true;
    key.hide();
  } catch (error) {
    at("error").textContent = error.message;
    at("error").hidden = false;
    if (error.status === 401) key.ask();
  }
}

function draw({ info, paths, components, security }) {
  const routes = Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, route]) => drawRoute(method.toUpperCase(), path, route, security)));
  const messages = Object.entries(components.schemas).map(([name, schema]) => drawMessage(name, schema));
  at("main").replaceChildren(element("p", {}, info.description), ...routes, ...messages);
  at(location.hash.slice(1))?.scrollIntoView();
}

function drawRoute(method, path, { summary, parameters = [], requestBody, responses }, security) {
  const id = `${method}${path}`.replaceAll("/", "-");
  const body = requestBody?.content["application/json"];
  const answer = responses[200].content["application/json"].schema;
  return section(id, code(`${method} ${path}`), summary,
    parameters.length ? drawFields(parameters.map(each => [each.name, each.schema, each.required])) : "",
    body ? element("p", {}, "Takes ", ...typeOf(body.schema), ".") : "",
    element("p", {}, "Answers with ", ...typeOf(answer), "."),
    drawExample(path, body?.example, security.length > 0));
}

function drawMessage(name, { description, properties, required = [] }) {
  const fields = Object.entries(properties).map(([field, schema]) => [field, schema, required.includes(field)]);
  return section(name, name, description, drawFields(fields));
}

function section(id, title, summary, ...parts) {
  const heading = element("h2", { id: `${id}-title` }, title);
  return element("section", { id, class: "card", "aria-labelledby": heading.id }, heading, element("p", {}, summary), ...parts);
}

/** Draws names, types, what is so by default, bounds and meanings. */
function drawFields(fields) {
  return element("dl", { class: "fields" }, ...fields.flatMap(([name, schema, isRequired]) => [
    element("dt", {}, code(name), " ", element("small", {}, ...typeOf(schema), ...(isRequired ? [", required"] : []), ...bounds(schema))),
    element("dd", {}, schema.description ?? ""),
  ]));
}

function bounds(schema) {
  const { minimum, maximum, maxItems, maxProperties } = { ...schema, ...schema.anyOf?.find(each => each.type !== "null") };
  const most = maxItems ?? maxProperties;
  const range = minimum === undefined ? "" : `, ${minimum.toLocaleString("en")} to ${maximum.toLocaleString("en")}`;
  const usual = schema.default === undefined || schema.default === null ? "" : `, default ${JSON.stringify(schema.default)}`;
  return [range, most === undefined ? "" : `, at most ${most.toLocaleString("en")}`, usual];
}

/** Returns what a value may be, as texts and links to messages. */
function typeOf({ $ref, anyOf, oneOf, enum: choices, type, items = {}, additionalProperties }) {
  if ($ref) return [element("a", { href: `#${$ref.split("/").pop()}` }, $ref.split("/").pop())];
  if (anyOf ?? oneOf) return (anyOf ?? oneOf).filter(each => each.type !== "null").flatMap((each, place) => [...(place ? [" or "] : []), ...typeOf(each)]);
  if (choices) return [choices.map(each => JSON.stringify(each)).join(" or ")];
  if (type === "array") return ["list of ", ...typeOf(items)];
  if (type === "object" && additionalProperties) return ["object of ", ...typeOf(additionalProperties)];
  return [type ?? "any value"];
}

/** Draws a command that sends a request. */
function drawExample(path, example, needsToken) {
  const token = needsToken ? ` \\\n  -H "Authorization: Bearer $TOKEN"` : "";
  const body = example ? ` \\\n  -H 'Content-Type: application/json' -d '${JSON.stringify(example)}'` : "";
  const search = path === "/v1/items" ? "?search=the" : "";
  return element("pre", { tabindex: "0" }, `curl '${new URL(path.slice(1) + search, document.baseURI)}'${token}${body}`);
}

begin();
