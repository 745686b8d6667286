// Package clusterapi is as much of a Kubernetes API server as an agent under measurement needs: it
// keeps objects, lists them, and tells of their changes. It checks nothing and grants everything.
//
//  1. New makes one, and Put stores objects before and while agents watch them.
//  2. Serve answers on a listener until that is closed; Close ends the watches.
//
// A Server's mutex guards all of it. Each watch has a goroutine of its connection, which waits for
// changes.
package clusterapi
