"""What people hear of: rules, and the messages that follow from them."""
