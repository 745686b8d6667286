// Package cli is the command line. Nouns read (culvert sid), verbs change
// (culvert sid add). Every command that reads prints a table, JSON or YAML; the
// JSON has the names of the configuration file and of the management API.
//
// Exit codes: 0 it is done, 1 it failed, 2 the command line makes no sense,
// 3 what was checked is not in order (check, doctor).
package cli
