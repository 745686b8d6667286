// Package netns gives tests network namespaces of their own, and the veth
// pairs between them. A namespace has a name that no other test has, and is
// deleted by that name when its test ends.
package netns
