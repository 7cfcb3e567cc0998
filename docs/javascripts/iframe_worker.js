// Search runs in a worker, which browsers refuse to pages that were opened from a folder. There a
// hidden frame does a worker's part; elsewhere nothing changes.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentDocument;
    inside.open();
    inside.write(`<!doctype html><body><script>
      postMessage = message => parent.postMessage(message, "*");
      importScripts = (...urls) => urls.reduce((before, url) => before.then(() =>
        new Promise((loaded, failed) => {
          const script = document.createElement("script");
          Object.assign(script, { src: url, onload: loaded, onerror: failed });
          document.body.append(script);
        })), Promise.resolve());
      <\/script><script src="${url}"><\/script></body>`);
    inside.close();
    window.addEventListener("message", event => {
      if (event.source !== this.frame.contentWindow) return;
      const heard = new MessageEvent("message", { data: event.data });
      this.dispatchEvent(heard);
      if (this.onmessage) this.onmessage(heard);
    });
  }

  postMessage(message) {
    const inside = this.frame.contentWindow; // whose own postMessage goes the other way
    const send = () => inside.dispatchEvent(new MessageEvent("message", { data: message }));
    if (this.frame.contentDocument.readyState === "complete") send();
    else this.frame.addEventListener("load", send, { once: true });
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = IFrameWorker;
