// Package operator is what an operator's commands ask of a cluster, with the
// operator's own rights: pods and their addresses, commands in containers, and
// what a connectivity test makes and takes away.
package operator
