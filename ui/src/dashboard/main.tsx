import { render } from "preact";
import "../shared/base.css";

render(<main>Rowlock</main>, document.getElementById("page")!);
