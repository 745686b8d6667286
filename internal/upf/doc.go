// Package upf turns the sessions of an SMF into what the data path holds, and
// keeps the promises of TS 29.244 about them: usage is reported, packets for
// idle UEs are kept, GTP-U paths are watched, and nothing of it is lost with
// the process.
package upf
