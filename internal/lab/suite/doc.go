// Package suite runs tests of an e2e.test, Kubernetes' own tests of a cluster, a few at a
// time: a suite is what an expression chooses of them. What has passed is in a state file,
// named after all that was tested, so that a run that was ended goes on where it was.
package suite
