// The form for the token of a service. The token stays in the memory of the page.

import { element } from "./elements.js";
import { useToken } from "./service.js";

/** Puts the form before the page's main part, hidden; calls used after somebody has given a token. */
export function keyForm(used) {
  const input = element("input", {
    id: "token", type: "password", autocomplete: "off", required: "", pattern: "[!-~]+", title: "Characters of ASCII without blanks",
  });
  const use = event => {
    event.preventDefault();
    useToken(input.value);
    input.value = "";
    used();
  };
  const form = element("form", { class: "card", hidden: "", submit: use },
    element("label", { for: input.id }, "Token of this service"),
    element("div", { class: "line" }, input, element("button", {}, "Use")),
    element("p", { class: "note" }, "The page keeps the token until you close or reload it."));
  document.querySelector("main").before(form);
  return {
    ask() {
      form.hidden = false;
      input.focus();
    },
    hide() {
      form.hidden = true;
    },
  };
}
