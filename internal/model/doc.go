// Package model is the reference for the data path: an interpreter of
// docs/reference/semantics.md and of the RFCs behind it, written for clarity and not for
// speed. It shares nothing with bpf/, so that tests can compare the two frame by frame.
//
// New makes a Model of a Network: the configuration, and the kernel's routes and
// neighbours. Run takes a frame to the end of its journey. Its Result says how the
// frame ended, what left, what the slow path got, and what was counted. A Model belongs
// to one goroutine.
package model
