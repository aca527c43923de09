/* Search where a page is opened as a file. Browsers start no Worker from file://, so that here a hidden frame takes its
   place: it runs the worker's script, and messages go to and fro as events. Served pages keep the real Worker. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      this.send = (data) => setTimeout(() => inside.dispatchEvent(new MessageEvent("message", { data })));
      const script = inside.document.createElement("script");
      script.onload = () => {
        this.ready = true;
        this.waiting.splice(0).forEach(this.send);
      };
      script.src = new URL(url, location.href).href;
      inside.document.body.append(script);
    }

    postMessage(data) {
      if (this.ready) this.send(data);
      else this.waiting.push(data);
    }
  };
}
