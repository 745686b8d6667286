// Package doctor looks at the machine that culvert runs on: what the kernel can
// do, what the process may do, and what interfaces do to packets that break
// tunnels. For what it finds it says what to do, as a command where one does.
package doctor
