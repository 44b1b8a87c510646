from trainmaster.cli import main

main()
