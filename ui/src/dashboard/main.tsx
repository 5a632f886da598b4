import { render } from "preact";
import "../shared/base.css";
import "./styles/layout.css";
import "./styles/parts.css";
import "./styles/views.css";
import "./styles/charts.css";
import { App } from "./app.tsx";
import { applyTheme } from "./theme.ts";

applyTheme();
const page = document.getElementById("page");
if (page) render(<App />, page);
