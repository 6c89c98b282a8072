no container
