// Reads other pages of this service, and sends what somebody asks for.

const SILENT = "The pages do not answer. Check that widenet ui runs.";

/** Returns a page as a document; no script of it runs. If the service refuses, the browser reloads this page and shows why. */
export function read(address) {
  return ask("GET", address, null, () => location.reload());
}

/** Sends a value and returns the answer as a document. Throws the sentence of a refusal. */
export function send(address, value) {
  return ask("POST", address, JSON.stringify(value), (page, reject) => {
    reject(new Error(page?.getElementById("main")?.textContent.trim() || SILENT));
  });
}

function ask(method, address, body, refused) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.responseType = "document";
    request.open(method, address);
    if (body) request.setRequestHeader("Content-Type", "application/json");
    request.onload = () => (request.status === 200 ? resolve(request.response) : refused(request.response, reject));
    request.onerror = () => reject(new Error(SILENT));
    request.send(body);
  });
}
