// The start form: what a person does there beyond filling it in.
"use strict";
