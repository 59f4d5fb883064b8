package conf_test

import (
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// A runtime prints the message and the details of an error. The code tells a program what to do.
func ExampleDescribe() {
	err := fmt.Errorf("network shop/blue: %w", conf.Errorf(conf.CodeInUse, "choose another address", "10.1.0.7 belongs to pod shop/db"))
	code, msg, details := conf.Describe(err)
	fmt.Println(code)
	fmt.Println(msg)
	fmt.Println(details)
	// Output:
	// 103
	// network shop/blue: 10.1.0.7 belongs to pod shop/db
	// choose another address
}

func ExampleUnknownKey() {
	fmt.Println(conf.UnknownKey("subnet", []string{"subnets", "mtu", "routes"}))
	// Output:
	// unknown key "subnet", did you mean "subnets"?
}
