// Reads other pages of this service.

/** Returns a page as a document; no script of it runs. If the service refuses, the browser reloads this page and shows why. */
export function read(address) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.responseType = "document";
    request.open("GET", address);
    request.onload = () => (request.status === 200 ? resolve(request.response) : location.reload());
    request.onerror = () => reject(new Error("no answer"));
    request.send();
  });
}
