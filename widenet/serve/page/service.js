// The service's routes. The token stays in this module's memory.

let token = "";

export function useToken(text) {
  token = text;
}

/** Why there is no answer, as one sentence. */
export class Refusal extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** Returns the answer of a route; a body makes it a POST. Throws Refusal, or AbortError after `signal`. */
export async function ask(path, body, signal) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const request = { headers, signal, cache: "no-store" };
  if (body) {
    headers["Content-Type"] = "application/json";
    Object.assign(request, { method: "POST", body: JSON.stringify(body) });
  }
  let response, answer;
  try {
    response = await fetch(path, request);
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(response?.status ?? 0, "The service does not answer. Check that it runs.");
  }
  if (!response.ok) throw new Refusal(response.status, asSentence(answer?.error?.message));
  return answer;
}

function asSentence(message = "the service refuses this request.") {
  return message[0].toUpperCase() + message.slice(1);
}
