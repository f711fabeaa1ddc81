// The API's documentation, from its OpenAPI document.

const element = (name, text = "", kind = "") => Object.assign(document.createElement(name), { textContent: text, className: kind });

/** An example of a schema, from the examples of its parts. */
function example(schema, all, depth = 0) {
  if (!schema || depth > 6) return null;
  if (schema.$ref) return example(all[schema.$ref.split("/").pop()], all, depth + 1);
  if (schema.examples?.length) return schema.examples[0];
  if (schema.anyOf) return example(schema.anyOf[0], all, depth + 1);
  if (schema.type === "array") return [example(schema.items, all, depth + 1)];
  if (schema.properties) return Object.fromEntries(Object.entries(schema.properties).map(([name, part]) => [name, example(part, all, depth + 1)]));
  return { string: "", boolean: true, number: 0, integer: 0 }[schema.type] ?? null;
}

function route(method, path, facts, schemas) {
  const box = element("details", "", "route");
  const head = document.createElement("summary");
  head.append(element("span", method.toUpperCase(), "method"), element("code", path), element("span", facts.summary));
  box.append(head, element("p", facts.description));
  if (facts.parameters?.length) {
    const list = document.createElement("dl");
    for (const parameter of facts.parameters) {
      list.append(element("dt", parameter.name), element("dd", [parameter.description, parameter.required && "required", parameter.schema.default != null && `default: ${parameter.schema.default}`].filter(Boolean).join("; ")));
    }
    box.append(list);
  }
  const [kind, body] = Object.entries(facts.requestBody?.content ?? {})[0] ?? [];
  if (body) box.append(element("p", `Send ${kind}:`), element("pre", JSON.stringify(example(body.schema, schemas), null, 2)));
  const good = Object.entries(facts.responses).find(([status]) => status < 300);
  const answer = good?.[1].content?.["application/json"];
  if (answer) box.append(element("p", `Response ${good[0]}:`), element("pre", JSON.stringify(example(answer.schema, schemas), null, 2)));
  return box;
}

const answer = await fetch("api/v1/openapi.json").catch(() => null);
const routes = document.getElementById("routes");
if (answer?.ok) {
  const document_ = await answer.json();
  document.getElementById("description").textContent = document_.info.description.replaceAll("`", "");
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, facts] of Object.entries(methods)) routes.append(route(method, path, facts, document_.components.schemas));
  }
} else routes.textContent = answer ? "Open the search page first and enter the token." : "The server does not respond. Start it again with: centerclip serve";
routes.setAttribute("aria-busy", "false");
