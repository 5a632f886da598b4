import { render } from "preact";
import "../shared/base.css";

render(<main>Replays</main>, document.getElementById("page")!);
