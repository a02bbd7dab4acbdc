// Search runs in a worker, and a page that was opened from a file may not start one. Here the same
// script runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.room = frame.contentWindow;
      this.room.postMessage = (data) => {
        this.dispatchEvent(new MessageEvent("message", { data }));
      };
      this.ready = new Promise((resolve, reject) => {
        const script = frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        frame.contentDocument.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.room.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
