import { render } from "preact";
import "../shared/base.css";
import "./style.css";
import { App } from "./app.tsx";

render(<App />, document.getElementById("page")!);
