// Reads other pages of this service.

/** Returns a page as a document; no script of it runs. A page that refuses is shown in place of this one. */
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
