// Package model is the reference for the data path: a plain interpreter of
// docs/reference/semantics.md and the RFCs behind it, written for clarity and not for
// speed. It shares nothing with bpf/, so that the two can be compared frame by
// frame.
//
// A Model is made from a Network (the configuration, and what the kernel's
// routes and neighbours say). Run takes one frame to the end of its journey
// and says how it ended, what left, what was handed to the slow path, and what
// was counted.
package model
