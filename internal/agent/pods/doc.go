// Package pods is the pods on this node: it gives them addresses, and has the
// kernel and the data path lead to them.
//
// Its user
//
//  1. opens them (Open) on the state file,
//  2. calls Restore once the data path is in the desired state,
//  3. calls Set when the node's place in the cluster changes, Add, Remove, Check
//     and Retain inside of Use when the CNI plugin asks, Retry and UpdateMTU from time
//     to time, and
//  4. calls Close before the data path closes.
//
// Pods have locks of their own: a pod that comes waits for no change of the
// configuration. gate keeps Close apart from what uses the data path, mu guards the
// maps, and hold keeps two callers from one attachment. Callers may be any
// goroutine; Restore starts some and waits for them.
package pods
