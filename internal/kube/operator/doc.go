// Package operator does the work of an operator's commands in a cluster, with the
// operator's own rights: it lists pods and their addresses, runs commands in
// containers, and creates and removes the objects of a connectivity test.
package operator
