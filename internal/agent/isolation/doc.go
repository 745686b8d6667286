// Package isolation has the data path enforce NetworkPolicies on the pods of this node.
//
// Its user makes a Keeper (New), calls Enforce before pods are put into the data path and
// whenever the configuration changes, calls Run in a goroutine, and Changed whenever the
// cluster or this node's pods may have changed. After a pod was put, Wait waits until the data
// path has what policies say of it.
//
// Where nothing is known nothing opens: the data path puts a new pod closed, and keeps what it
// has of the others until the Kubernetes API has sent everything.
//
// rounds keeps rounds apart, each of which reads the state, compiles and applies it. mu
// guards what they left, and is locked after rounds.
package isolation
