// Package cmdline is what Culvert's command lines share: how a program starts
// and ends, exit codes, usage errors, rules for arguments, and where one of our
// programs finds another.
//
// A program calls Main with the function that makes its root command. Commands
// return Usage errors for what the user typed wrong, and any other error for what
// failed; an error with a method ExitStatus chooses the exit code itself.
package cmdline
