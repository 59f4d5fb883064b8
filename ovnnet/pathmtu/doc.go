// Package pathmtu owns which packets fit where: the form in which nodes publish their MTUs in NB, the row with the
// smallest ones, and the MTU of a router's port. It reads no interface, and it changes no switch and no router.
package pathmtu
