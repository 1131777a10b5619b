import { GateProvider } from "headgate/react";
import { createRoot } from "react-dom/client";
import { Board } from "./Board";
import "./board.css";

createRoot(document.querySelector("#app")!).render(<GateProvider url={location.origin}><Board /></GateProvider>);
