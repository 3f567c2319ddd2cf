// Shows the token to the service, which then gives a cookie.

const form = document.getElementById("key");
const field = document.getElementById("token");

form.addEventListener("submit", async event => {
  event.preventDefault();
  const lost = document.getElementById("lost");
  try {
    const answer = await fetch("session", { method: "POST", headers: { Authorization: `Bearer ${field.value}` } });
    if (answer.ok) return location.reload();
    lost.textContent = answer.status === 401 ? "This is not the token." : "The pages do not answer as they should.";
  } catch {
    lost.textContent = "The pages do not answer. Check that widenet ui runs.";
  }
  field.value = "";
  lost.hidden = false;
  field.focus();
});
field.focus();
