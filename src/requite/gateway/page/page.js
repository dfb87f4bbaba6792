// Lists the methods of openapi.json and makes calls. All texts of services are set as text, never
// as HTML.
"use strict";

const SHOWN_MAX = 100_000; // characters of a reply
const DEPTH_MAX = 6; // of an example
const byId = (id) => document.getElementById(id);
const copyOf = (id) => byId(id).content.firstElementChild.cloneNode(true);
const token = () => byId("token").value.trim();

function headers(more) {
  return token() ? { ...more, Authorization: `Bearer ${token()}` } : more;
}

function resolved(schema, schemas) {
  const name = (schema.$ref ?? "").replace("#/components/schemas/", "");
  return name && Object.hasOwn(schemas, name) ? schemas[name] : schema;
}

// A value that a schema allows, for the field of the body.
function example(given, schemas, depth = 0) {
  const schema = resolved(given, schemas);
  if (depth > DEPTH_MAX) return null;
  if (Array.isArray(schema.examples) && schema.examples.length) return schema.examples[0];
  if ("default" in schema) return schema.default;
  if ("const" in schema) return schema.const;
  if (Array.isArray(schema.enum)) return schema.enum[0];
  const choice = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (Array.isArray(choice) && choice.length) return example(choice[0], schemas, depth + 1);
  switch (schema.type) {
    case "object": {
      const needed = new Set(schema.required ?? []);
      const parts = Object.entries(schema.properties ?? {}).filter(([name]) => needed.has(name));
      return Object.fromEntries(
        parts.map(([name, part]) => [name, example(part, schemas, depth + 1)]),
      );
    }
    case "array":
      return (schema.prefixItems ?? []).map((part) => example(part, schemas, depth + 1));
    case "integer":
    case "number":
      return Math.max(schema.minimum ?? 1, 1);
    case "boolean":
      return false;
    case "null":
      return null;
    default:
      return schema.format === "decimal" ? "0" : "";
  }
}

function typeName(given, schemas) {
  const schema = given.$ref ? resolved(given, schemas) : given;
  if (given.$ref) return schema.title ?? given.$ref.split("/").pop();
  if (Array.isArray(schema.anyOf)) return schema.anyOf.map((part) => typeName(part, schemas)).join(" | ");
  if (schema.type === "array" && schema.items) return `list of ${typeName(schema.items, schemas)}`;
  return schema.type ?? "bytes";
}

function fill(node, address, operation, schemas) {
  const find = (selector) => node.querySelector(selector);
  const [[inputType, input]] = Object.entries(operation.requestBody.content);
  const [[outputType, output]] = Object.entries(operation.responses["200"].content);
  const isStream = outputType === "text/event-stream";
  const declared = operation.responses["422"]?.content["application/problem+json"].schema.anyOf;
  find(".address").textContent = address;
  find(".doc").textContent = operation.summary;
  find(".about").textContent = operation.description;
  find(".about").hidden = !operation.description;
  find(".types").textContent =
    `takes ${typeName(input.schema, schemas)}, returns ${isStream ? "each " : ""}` +
    typeName(output["x-data"] ?? output.schema, schemas) +
    (declared ? `, refuses with ${declared.map((error) => error.title).join(", ")}` : "");
  const body = find("textarea");
  body.value =
    inputType === "application/json" ? JSON.stringify(example(input.schema, schemas), null, 2) : "";
  let stopping = null;
  find(".stop").addEventListener("click", () => stopping?.abort());
  find("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    stopping = new AbortController();
    find(".send").disabled = true;
    find(".stop").disabled = false;
    await call(node, address, inputType, body.value, stopping.signal);
    find(".send").disabled = false;
    find(".stop").disabled = true;
  });
}

async function call(node, address, type, body, signal) {
  const find = (selector) => node.querySelector(selector);
  const [status, reply] = [find(".status"), find(".reply")];
  const fields = { "Content-Type": type };
  if (find(".timeout").value) fields["X-Request-Timeout"] = find(".timeout").value;
  if (find(".key").value) fields["Idempotency-Key"] = find(".key").value;
  status.className = "status";
  status.textContent = "…";
  reply.textContent = "";
  reply.hidden = false;
  const began = performance.now();
  try {
    const answer = await fetch(address, { method: "POST", headers: headers(fields), body, signal });
    const show = () => {
      const ms = Math.round(performance.now() - began);
      status.textContent = `${answer.status} ${answer.statusText} · ${ms} ms`;
    };
    status.classList.add(answer.ok ? "good" : "bad");
    show();
    await (answer.headers.get("Content-Type")?.startsWith("text/event-stream")
      ? follow(answer, reply, status)
      : whole(answer, reply));
    show();
  } catch (error) {
    status.className = "status bad";
    status.textContent = error.name === "AbortError" ? "stopped" : `no answer: ${error.message}`;
  }
}

async function whole(answer, reply) {
  const text = await answer.text();
  try {
    reply.textContent = JSON.stringify(JSON.parse(text), null, 2).slice(0, SHOWN_MAX);
  } catch {
    reply.textContent = text.slice(0, SHOWN_MAX);
  }
}

async function follow(answer, reply, status) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const lines = event.split("\n");
      const kind = lines.find((line) => line.startsWith("event: "))?.slice(7) ?? "";
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      if (kind === "error") status.classList.replace("good", "bad");
      if (data.length && kind !== "end" && reply.textContent.length < SHOWN_MAX) {
        reply.append(`${kind ? `${kind}: ` : ""}${data.join("\n")}\n`);
      }
    }
  }
}

async function list() {
  const [state, services] = [byId("state"), byId("services")];
  state.hidden = false;
  services.replaceChildren();
  const answer = await fetch("openapi.json", { headers: headers({}) });
  const found = await answer.json();
  if (!answer.ok) {
    state.textContent = `${found.title}: ${found.detail}`;
    return;
  }
  byId("who").hidden = !found.components.securitySchemes;
  const schemas = found.components.schemas;
  for (const tag of found.tags) {
    const section = copyOf("service");
    section.querySelector("h2").textContent = `${tag.name}, ${tag.description}`;
    for (const [path, { post }] of Object.entries(found.paths)) {
      if (post.tags[0] !== tag.name) continue;
      const node = copyOf("method");
      fill(node, path.slice(1), post, schemas);
      section.append(node);
    }
    services.append(section);
  }
  state.hidden = found.tags.length > 0;
  state.textContent = "There are no typed services that you may call.";
}

async function start() {
  try {
    await list();
  } catch (error) {
    byId("state").textContent = `The document cannot be read: ${error.message}`;
  }
}

byId("who").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
start();
