// What may stand at a place of a JSON text, by its JSON Schema.

const TOKENS = /"(?:[^"\\\n]|\\.)*"?|[{}[\],:]|[^\s{}[\],:"]+/g;

/**
 * Finds the place of a caret in a text that may be unfinished.
 * Returns the objects and lists around it, from the outermost, each with the key or the number of the entry;
 * whether a key or a value stands there; what of it is written before the caret; and from where to where it goes.
 */
export function placeOf(text, caret) {
  const around = [];
  let place;
  const mark = (written, start, stop) => {
    const inner = around.at(-1);
    place ??= { around: around.map(each => ({ ...each })), isKey: inner?.isList === false && !inner.hasKey, written, start, stop };
  };
  for (const { 0: token, index } of text.matchAll(TOKENS)) {
    const stop = index + token.length;
    if (index >= caret) mark("", caret, caret);
    const isWord = !"{}[],:".includes(token);
    if (isWord && caret <= stop) mark(text.slice(index, caret).replaceAll('"', ""), index, stop);
    const inner = around.at(-1);
    if (token === "{" || token === "[") around.push({ isList: token === "[", key: 0, hasKey: false, values: new Map() });
    else if (token === "}" || token === "]") around.pop();
    else if (token === "," && inner?.isList) inner.key += 1;
    else if (token === ",") { if (inner) inner.hasKey = false; }
    else if (isWord && inner && !inner.isList && !inner.hasKey) inner.key = plain(token);
    else if (token === ":" && inner) inner.hasKey = true;
    else if (isWord && inner && !inner.isList) inner.values.set(inner.key, plain(token));
    if ((token === "{" || token === "[") && inner && !inner.isList) inner.values.set(inner.key, undefined);
  }
  mark("", caret, caret);
  return place;
}

/** Returns what may stand at a place: { text: what to insert, name: what to show, about: a sentence }. */
export function choices(schema, { around, isKey, written }, fields) {
  let here = [schema];
  around.forEach((each, depth) => {
    here = here.flatMap(one => kindsOf(schema, one, each));
    const isLast = depth === around.length - 1;
    if (isLast && isKey) return;
    here = here.flatMap(one => (each.isList ? [one.prefixItems?.[each.key] ?? one.items] : [one.properties?.[each.key]])).filter(Boolean);
  });
  const inner = around.at(-1);
  const found = isKey ? keys(schema, here, inner) : values(schema, here, inner?.key === "field" ? fields : []);
  const start = written.toLowerCase();
  return found.filter(each => each.name.toLowerCase().startsWith(start));
}

function keys(schema, here, { values: present }) {
  const found = new Map();
  for (const [name, part] of here.flatMap(one => Object.entries(one.properties ?? {}))) {
    if (!present.has(name) && !found.has(name)) found.set(name, { text: `"${name}": `, name, about: about(schema, part) });
  }
  return [...found.values()];
}

function values(schema, here, fields) {
  const found = new Map(fields.map(name => [name, ""]));
  const literals = new Map(fields.map(name => [name, JSON.stringify(name)]));
  const add = (value, said) => { found.set(String(value), said); literals.set(String(value), JSON.stringify(value)); };
  for (const one of here.flatMap(each => flat(schema, each))) {
    for (const value of one.enum ?? ("const" in one ? [one.const] : [])) add(value, one.description ?? "");
    if (one.type === "boolean") [true, false].forEach(value => add(value, ""));
    if (one.type === "null") add(null, "");
    if (one.properties?.kind) for (const kind of one.properties.kind.enum ?? [one.properties.kind.const]) {
      if (kind && !found.has(kind)) { found.set(kind, one.description ?? ""); literals.set(kind, JSON.stringify({ kind })); }
    }
  }
  for (const { default: usual } of here) if (usual !== undefined && typeof usual !== "object") add(usual, "the default");
  return [...found].map(([name, said]) => ({ text: literals.get(name), name, about: said.split("\n")[0] }));
}

/** Returns the schemas of an object or a list that a schema allows; of objects, those of the kind that is written. */
function kindsOf(schema, one, { isList, values: written }) {
  const all = flat(schema, one).filter(each => (isList ? each.items || each.prefixItems : each.properties));
  const kind = written.get("kind");
  const exact = all.filter(({ properties }) => properties?.kind && [properties.kind.const, ...(properties.kind.enum ?? [])].includes(kind));
  return exact.length ? exact : all;
}

/** Returns a schema without references and alternatives. */
function flat(schema, one) {
  if (one.$ref) return flat(schema, one.$ref.slice(2).split("/").reduce((part, name) => part[name], schema));
  const inner = one.anyOf ?? one.oneOf ?? one.allOf;
  return inner ? inner.flatMap(each => flat(schema, each)) : [one];
}

function about(schema, part) {
  const said = part.description ?? flat(schema, part)[0]?.description ?? "";
  return said.split("\n")[0];
}

function plain(token) {
  try { return JSON.parse(token); } catch { return token.replaceAll('"', ""); }
}
