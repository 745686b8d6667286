// Package desired is what people ask for: the resources of the configuration
// file and of the management API, and the settings that the process starts
// with.
//
// Its user
//
//  1. makes a State of the configuration file (State.WithFile) and of what the
//     state file holds of the API (Decode),
//  2. changes it with WithFile, WithAPI and Without, each of which returns a new
//     State and leaves the old one as it is, and
//  3. compares two lists of resources with Diff, which is what people see of a
//     change.
//
// Nothing here locks, starts a goroutine or reads a file.
package desired
